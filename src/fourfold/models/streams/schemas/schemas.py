"""The schemas of all streams of one store: looked at, and changed one version at a time.

    store.streams.schemas.put("orders", {"schema": {"type": "object", "required": ["id"]}})

A change is worked out and proven while others append; the transaction only looks whether the
registry is still the one that it began with, and writes down where the new version begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fourfold.errors import InvalidInput, PreconditionFailed, Refused
from fourfold.kernel import Transaction
from fourfold.models.streams import rules, validation, writer
from fourfold.models.streams.archive.indexes import catalog
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.schemas import registry as registries
from fourfold.models.streams.schemas.registry import Registry

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class _Plan(NamedTuple):
    """A registry that shall be, and the one that it came from."""

    before: Registry
    after: Registry
    sid: int


class Schemas:
    """The registries of the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def get(self, name: str) -> Registry:
        """The registry of a stream; an empty one when it has none."""
        info, registry = self._look(name)
        return _handed_out(registry, info)

    def put(self, name: str, change: Any) -> Registry:
        """Change some of: `schema` and `lens`, `routingKey`, `search`. Every message that was valid
        must be valid in the new version once it went through the lens; that is proven before.
        """
        done = self._streams.database.transact(self._putting(self._plan(name, change)))
        if self._streams.settle is not None:
            self._streams.settle(name)
        return done

    async def put_async(self, name: str, change: Any) -> Registry:
        """The same for coroutines."""
        # A proof may take its time, and publishing too.
        return await asyncio.to_thread(self.put, name, change)

    def _look(self, name: str) -> tuple[StreamInfo, Registry]:
        validation.check_name(name)
        with self._streams.database.read() as snapshot:
            info = writer.living(snapshot, name, self._streams.moment())
            return info, rules.registry_of(snapshot, info)

    def _plan(self, name: str, given: Any) -> _Plan:
        change = registries.change_of(given)
        info, before = self._look(name)
        if not info.is_json:
            raise InvalidInput(
                f"the stream {name!r} holds {info.content_type}; only JSON has a schema",
                hint="Create the stream with the content type application/json.",
            )
        return _Plan(before, before.changed(change), info.sid)

    def _putting(self, plan: _Plan) -> Callable[[Transaction], Registry]:
        def work(txn: Transaction) -> Registry:
            now = self._streams.moment()
            row = txn.one(writer.SQL.stream_by_sid, (plan.sid,))
            info = None if row is None else writer.as_used(writer.info_of(row), now)
            if info is None or info.deleted or rules.registry_of(txn, info) != plan.before:
                raise PreconditionFailed(
                    "the stream or its registry changed meanwhile", hint="Look, and try again."
                )
            if plan.after == plan.before:
                return _handed_out(plan.before, info)
            if not plan.before.current_version and plan.after.current_version:
                _refuse_records(info)
            after = plan.after.begun(info.next_offset)
            _write(txn, info, after, now.ms)
            return _handed_out(after, info)

        return work


def _handed_out(registry: Registry, info: StreamInfo) -> Registry:
    """A copy for a caller, who may change it, with offsets of the stream's incarnation."""
    copy = msgspec.json.decode(registries.encoded(registry), type=Registry)
    return copy.of_incarnation(info.incarnation_number)


def _write(txn: Transaction, info: StreamInfo, after: Registry, now_ms: int) -> None:
    version = None
    if after == registries.EMPTY:
        # A stream that asks for nothing any more is like one that never did.
        txn.execute(rules.SQL.drop_schema, (info.name,))
    else:
        version = after.current_version
        text = registries.encoded(after).decode()
        txn.execute(rules.SQL.put_schema, (info.name, text, now_ms))
    txn.execute(rules.SQL.set_schema_version, (info.sid, version, now_ms))
    for field in () if after.search is None else after.search.fields:
        catalog.declare(txn, info.name, field, now_ms)


def _refuse_records(info: StreamInfo) -> None:
    if info.next_offset > info.first_offset:
        raise Refused(
            f"the stream {info.name!r} has records that no schema was asked of",
            hint="Set the first schema before the first append; a new stream can take its place.",
        )
