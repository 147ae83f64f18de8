"""Schema registries of the streams of one store.

    store.streams.schemas.put("orders", {"schema": {"type": "object", "required": ["id"]}})

A change is planned and proven while other callers append; the transaction only checks that the
registry has not changed since, and stores where the new version starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fourfold.errors import InvalidInput, PreconditionFailed, Refused
from fourfold.kernel import Transaction
from fourfold.models.streams import rules, validation, writer
from fourfold.models.streams.archive.indexes import catalog
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.schemas import registry as registries
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.search.companions import plans

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class _RegistryPlan(NamedTuple):
    """The registry of a stream before and after a change."""

    before: Registry
    after: Registry
    sid: int


class Schemas:
    """The registries of the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def get(self, name: str) -> Registry:
        """Return the registry of a stream; an empty one if none was set."""
        info, registry = self._load(name)
        return _for_caller(registry, info)

    def put(self, name: str, change: Any) -> Registry:
        """Change `schema` and `lens`, `routingKey` or `search`, and return the new registry.

        Every valid message must stay valid in the new version once promoted by the lens; this is
        proven first.
        """
        registry = self._streams.database.transact(self._putting(self._plan(name, change)))
        if self._streams.publish_on_write is not None:
            self._streams.publish_on_write(name)
        return registry

    async def put_async(self, name: str, change: Any) -> Registry:
        """Change `schema` and `lens`, `routingKey` or `search`, and return the new registry."""
        # A proof and publishing may take long.
        return await asyncio.to_thread(self.put, name, change)

    def _load(self, name: str) -> tuple[StreamInfo, Registry]:
        validation.check_name(name)
        with self._streams.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, name, self._streams.read_clock())
            return info, rules.registry_of(snapshot, info)

    def _plan(self, name: str, data: Any) -> _RegistryPlan:
        change = registries.change_of(data)
        self._streams.check_publishable()
        info, before = self._load(name)
        if not info.is_json:
            raise InvalidInput(
                f"stream {name!r}: a schema requires JSON, got {info.content_type}",
                hint="Create the stream with the content type application/json.",
            )
        return _RegistryPlan(before, before.changed(change), info.sid)

    def _putting(self, plan: _RegistryPlan) -> Callable[[Transaction], Registry]:
        def work(txn: Transaction) -> Registry:
            now = self._streams.read_clock()
            row = txn.one(writer.SQL.stream_by_sid, (plan.sid,))
            info = None if row is None else writer.with_last_use(writer.info_of(row), now)
            if info is None or info.deleted or rules.registry_of(txn, info) != plan.before:
                raise PreconditionFailed(
                    "the stream or its registry changed meanwhile", hint="Read it and try again."
                )
            if plan.after == plan.before:
                return _for_caller(plan.before, info)
            if not plan.before.current_version and plan.after.current_version:
                _check_empty(info)
            after = plan.after.begun(info.next_offset)
            _write(txn, info, after, now.ms)
            # Before the commit and after it: an append may be prepared meanwhile.
            self._streams.note_schema(info.name)
            txn.after_commit(partial(self._streams.note_schema, info.name))
            return _for_caller(after, info)

        return work


def _for_caller(registry: Registry, info: StreamInfo) -> Registry:
    """Return a copy that the caller may modify, with offsets of the stream's incarnation."""
    copy = msgspec.json.decode(registries.encoded(registry), type=Registry)
    return copy.of_incarnation(info.incarnation_number)


def _write(txn: Transaction, info: StreamInfo, after: Registry, now_ms: int) -> None:
    version = None
    if after == registries.EMPTY:
        # A stream without any rule is stored like one that never had any.
        txn.execute(rules.SQL.drop_schema, (info.name,))
    else:
        version = after.current_version
        text = registries.encoded(after).decode()
        txn.execute(rules.SQL.put_schema, (info.name, text, now_ms))
    txn.execute(rules.SQL.set_schema_version, (info.sid, version, now_ms))
    plans.refresh(txn, info.name, after, now_ms)
    for field in () if after.search is None else after.search.fields:
        catalog.declare(txn, info.name, field, now_ms)


def _check_empty(info: StreamInfo) -> None:
    if info.next_offset > info.first_offset:
        raise Refused(
            f"stream {info.name!r}: cannot set the first schema after the first append",
            hint="Set the first schema before the first append, or create a new stream.",
        )
