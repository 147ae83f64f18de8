"""The profiles of all streams of one store: what each is used as."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Transaction
from fourfold.models.streams import rules, validation, writer
from fourfold.models.streams.profiles import Profile, read
from fourfold.models.streams.records import StreamInfo

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Profiles:
    """The profiles of the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def get(self, name: str) -> Profile:
        """The profile of a stream; the generic one when none was set."""
        validation.check_name(name)
        with self._streams.database.read() as snapshot:
            info = writer.living(snapshot, name, self._streams.moment())
            return rules.profile_of(snapshot, info)

    def put(self, name: str, given: Any) -> Profile:
        """Use a stream as something, from now on."""
        done = self._streams.database.transact(self._putting(name, read(given)))
        if self._streams.settle is not None:
            self._streams.settle(name)
        return done

    async def put_async(self, name: str, given: Any) -> Profile:
        """The same for coroutines."""
        work = self._putting(name, read(given))
        done = await self._streams.database.transact_async(work)
        if self._streams.settle is not None:
            await asyncio.to_thread(self._streams.settle, name)
        return done

    def _putting(self, name: str, profile: Profile) -> Callable[[Transaction], Profile]:
        validation.check_name(name)

        def work(txn: Transaction) -> Profile:
            now = self._streams.moment()
            info = writer.living(txn, name, now)
            _refuse_unfit(info, profile)
            rules.write_profile(txn, name, profile, info.next_offset, now.ms)
            txn.execute(rules.SQL.set_profile, (info.sid, profile.kind, now.ms))
            return profile

        return work


def _refuse_unfit(info: StreamInfo, profile: Profile) -> None:
    if profile.needs_json and not info.is_json:
        raise InvalidInput(
            f"the stream {info.name!r} holds {info.content_type}; {profile.kind} needs JSON",
            hint="Create the stream with the content type application/json.",
        )
    is_new = info.profile != profile.kind
    if profile.needs_empty_stream and is_new and info.next_offset > info.first_offset:
        raise Refused(
            f"the stream {info.name!r} has records already; {profile.kind} must be set before",
            hint="A new stream can take its place.",
        )
