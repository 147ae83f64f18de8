"""Profiles of the streams of one store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Transaction
from fourfold.models.streams import rules, validation, writer
from fourfold.models.streams.profiles import GenericProfile, read
from fourfold.models.streams.records import StreamInfo

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Profiles:
    """The profiles of the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def get(self, name: str) -> GenericProfile:
        """Return the profile of a stream; the generic one if none was set."""
        validation.check_name(name)
        with self._streams.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, name, self._streams.read_clock())
            return rules.profile_of(snapshot, info)

    def put(self, name: str, value: Any) -> GenericProfile:
        """Set the profile of a stream from JSON, for all later appends."""
        profile = self._streams.database.transact(self._putting(name, read(value)))
        if self._streams.publish_on_write is not None:
            self._streams.publish_on_write(name)
        return profile

    async def put_async(self, name: str, value: Any) -> GenericProfile:
        """Set the profile of a stream from JSON, for all later appends."""
        work = self._putting(name, read(value))
        profile = await self._streams.database.transact_async(work)
        if self._streams.publish_on_write is not None:
            await asyncio.to_thread(self._streams.publish_on_write, name)
        return profile

    def _putting(
        self, name: str, profile: GenericProfile
    ) -> Callable[[Transaction], GenericProfile]:
        validation.check_name(name)
        self._streams.check_publishable()

        def work(txn: Transaction) -> GenericProfile:
            now = self._streams.read_clock()
            info = writer.get_stream(txn, name, now)
            _check_applicable(info, profile)
            rules.write_profile(txn, name, profile, info.next_offset, now.ms)
            txn.execute(rules.SQL.set_profile, (info.sid, profile.kind, now.ms))
            return profile

        return work


def _check_applicable(info: StreamInfo, profile: GenericProfile) -> None:
    if profile.needs_json and not info.is_json:
        raise InvalidInput(
            f"stream {info.name!r}: {profile.kind!r} requires JSON, got {info.content_type}",
            hint="Create the stream with the content type application/json.",
        )
    is_new = info.profile != profile.kind
    if profile.needs_empty_stream and is_new and info.next_offset > info.first_offset:
        raise Refused(
            f"stream {info.name!r}: cannot set profile {profile.kind!r} after the first append",
            hint="Create a new stream.",
        )
