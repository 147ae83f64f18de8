"""One namespace of a LangGraph thread: a session whose steps are checkpoints.

Everything is read from the session's log; caches here only save reading it again. Every call checks
whether the log has grown, so any number of these objects may use one session.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fourfold.adapters.langgraph.delta_chain import (
    DELTA_WEIGHT_MIN,
    DeltaChain,
    find_whole,
)
from fourfold.adapters.langgraph.deltas import fold, weighs_at_least
from fourfold.adapters.langgraph.list_chain import Chain, Pack, read_chain
from fourfold.adapters.langgraph.records import (
    DEPTH_MAX,
    CheckpointRecord,
    begin_step,
    diff_mapping,
    get_base_event,
    is_checkpoint,
    omit_updated_channels,
    parse_record,
)
from fourfold.adapters.langgraph.values import (
    EventValues,
    NotPlainError,
    Serde,
    copy_plain,
    is_itemized,
    is_same,
    parse_items,
    read_value,
    write_node,
)
from fourfold.adapters.langgraph_items import Item, Values, parse_item, value_reader
from fourfold.adapters.session_ids import AnySessions, expand_name, shorten_name
from fourfold.cache import LruCache
from fourfold.content import InternedPayload
from fourfold.errors import (
    CorruptData,
    HeadMoved,
    NotFound,
    PreconditionFailed,
    ReplayMismatch,
)
from fourfold.models.sessions import UNSET, Event
from fourfold.models.sessions.records import Claim, Unset

ADAPTER_EVENTS_MAX: Final = 1_024
"""Events of a thread that are cached in memory."""
ADAPTER_LISTS_MAX: Final = 32
"""Lists of a thread that are cached in memory, and other values that are stored as deltas."""

WRITES = "langgraph/writes"
_PAGE = 64

Write = tuple[str, str, int, str, Any]
"""Task path, task id, index of the write, channel, value."""


class _NewValues(NamedTuple):
    """Values of a new checkpoint that caches need when it is stored."""

    event_values: EventValues
    extended: dict[str, int]
    """The retained length of each extended list."""
    deltas: dict[str, Item]


class ThreadLog:
    """A session of checkpoints. The caller holds `lock`."""

    def __init__(
        self, sessions: AnySessions, sid: str, serde: Serde, lock: threading.RLock | None = None
    ) -> None:
        self.sessions = sessions
        self.sid = sid
        self.lock = lock or threading.RLock()
        self._serde = serde
        self._events: LruCache[int, Event] = LruCache(ADAPTER_EVENTS_MAX)
        self._records: LruCache[int, CheckpointRecord] = LruCache(ADAPTER_EVENTS_MAX)
        self._event_ids: LruCache[str, int] = LruCache(ADAPTER_EVENTS_MAX)
        self._write_event_ids: LruCache[str, list[int]] = LruCache(ADAPTER_EVENTS_MAX)
        """Events with the writes of a checkpoint, if all of them are known."""
        self._chains: LruCache[str, Chain] = LruCache(ADAPTER_LISTS_MAX)
        self._delta_chains: LruCache[str, DeltaChain] = LruCache(ADAPTER_LISTS_MAX)
        self._stored: LruCache[Item, tuple[str, int]] = LruCache(ADAPTER_LISTS_MAX)
        self._newest: CheckpointRecord | None = None
        self._seen = 0
        self._last: int | None = None
        """The last event, if `exists` has just read it."""

    # Reading

    def exists(self) -> bool:
        """Return True if the session exists. The call that follows does not ask again."""
        try:
            self._last = self.sessions.current_view(self.sid).counters.event
        except NotFound:
            return False
        return True

    @property
    def is_read(self) -> bool:
        """True if the log has been read or written before."""
        return self._seen > 0

    def _last_event(self) -> int:
        last, self._last = self._last, None
        return self.sessions.current_view(self.sid).counters.event if last is None else last

    def newest(self) -> CheckpointRecord | None:
        """Return the checkpoint with the greatest id, or None."""
        last = self._last_event()
        if last != self._seen:
            newest: CheckpointRecord | None = None
            for event in self._backwards(last, self._seen):
                if is_checkpoint(event):
                    record = self.record(event.id)
                    if newest is None:
                        newest = self._newest = self.record(record.newest)
                        if not self._seen:
                            break
                    # Another writer may have replaced a cached checkpoint.
                    self._event_ids.pop(record.id)
                elif event.type == WRITES:
                    self._write_event_ids.clear()
            self._seen = last
        return self._newest

    def _known_newest(self) -> CheckpointRecord | None:
        """Return the newest checkpoint of the events that were read, without reading more."""
        self._last = None
        return self._newest

    def newest_at(self, event_id: int) -> CheckpointRecord | None:
        """Return the checkpoint that was the newest one at an event, or None."""
        for event in self._backwards(event_id, 0):
            if is_checkpoint(event):
                return self.record(self.record(event.id).newest)
        return None

    def find(self, checkpoint_id: str) -> CheckpointRecord | None:
        """Return the latest version of a checkpoint by its id, or None."""
        self.newest()
        return self._find(checkpoint_id)

    def _find(self, checkpoint_id: str) -> CheckpointRecord | None:
        """Return a checkpoint like `find`, after `newest`."""
        event_id = self._event_ids.get(checkpoint_id)
        if event_id is None:
            for event in self._versions(checkpoint_id):
                event_id = event.id
                self._event_ids.put(checkpoint_id, event_id)
        return None if event_id is None else self.record(event_id)

    def record(self, event_id: int) -> CheckpointRecord:
        """Return the checkpoint of an event, composed from its bases."""
        pending: list[Event] = []
        base: CheckpointRecord | None = None
        next_id: int | None = event_id
        while next_id is not None:
            base = self._records.get(next_id)
            if base is not None:
                break
            pending.append(self._event(next_id))
            next_id = get_base_event(pending[-1])
        for event in reversed(pending):
            base = parse_record(event, base)
            self._records.put(event.id, base)
        assert base is not None
        return base

    def records(self, before: str | None = None) -> Iterator[CheckpointRecord]:
        """Yield checkpoints in descending order of their ids."""
        last = self._last_event()
        seen: set[str] = set()
        late: list[CheckpointRecord] = []
        for event in self._backwards(last, 0):
            if not is_checkpoint(event):
                continue
            record = self.record(event.id)
            if record.id in seen:
                continue
            seen.add(record.id)
            if record.latest is not None or late:
                # From here on ids are in any order, but none is greater than those before.
                late.append(record)
            elif before is None or record.id < before:
                yield record
        late.sort(key=lambda record: record.id, reverse=True)
        yield from (record for record in late if before is None or record.id < before)

    def values(self, places: Mapping[str, int]) -> dict[str, Any]:
        """Return the values of channels, each from the event that holds it."""
        return {name: self._value(name, place) for name, place in places.items()}

    def _value(self, name: str, place: int) -> Any:
        """Return the value of a channel from the event that holds it."""
        chain = self._chains.get(name)
        if chain is not None and place in chain.lengths:
            return chain.values(chain.lengths[place], self._serde, self._read)
        deltas = self._delta_chains.get(name)
        if deltas is not None and deltas.holds(place):
            return deltas.value(place)
        event = self._event(place)
        node = _node(event, name)
        if "delta" in node:
            return self._delta_chain(name, place).value(place)
        if "list" in node:
            chain = self._chain(name, place)
            return chain.values(chain.lengths[place], self._serde, self._read)
        return read_value(node, value_reader(event, self._event), self._serde, self._read)

    def origins(self, name: str, place: int, count: int) -> list[Event]:
        """Return, for each item of a list of `count` items, the event that added it."""
        origins: list[Event] = []
        next_place: int | None = place
        while next_place is not None and len(origins) < count:
            event = self._event(next_place)
            node = _node(event, name)
            keep = node.get("keep", 0)
            origins += [event] * (count - len(origins) - keep)
            next_place = node.get("on")
        return origins[::-1]

    def read_document(self, document: Any) -> dict[str, Any]:
        """Return a dict that `_set_document` wrote."""
        form, value = document
        if form == "plain":
            return copy.deepcopy(value)
        item = Item(value["type"], value["data"])
        result: dict[str, Any] = self._serde.loads(item, self._read)
        return result

    def writes(self, checkpoint_id: str, *, knows: bool = False) -> list[Write]:
        """Return the pending writes of a checkpoint in the order of their application.

        With `knows` the log is not read again: `newest` was just called.
        """
        writes: dict[tuple[str, int], Write] = {}
        for event in self.write_events(checkpoint_id, knows=knows):
            data = event.data
            values = value_reader(event, self._event)
            for channel, index, node in data["writes"]:
                place = (data["task"], index)
                if data.get("replace") or place not in writes:
                    value = self._written_value(channel, node, values)
                    writes[place] = (data["path"], data["task"], index, channel, value)
        return sorted(writes.values(), key=lambda write: write[:3])

    def _written_value(self, channel: str, node: Mapping[str, Any], values: Values) -> Any:
        if "at" in node:
            return self._value(channel, node["at"])
        if "delta" not in node:
            return read_value(node, values, self._serde, self._read)
        item = parse_item(node["delta"], values)
        delta = self._serde.loads(item, self._read)
        try:
            return fold(self._value(channel, node["on"]), [delta])
        except (TypeError, ValueError, LookupError) as error:
            raise CorruptData(
                f"session {self.sid!r}: a write to {channel!r} does not fit: {error}"
            ) from error

    def write_events(self, checkpoint_id: str, *, knows: bool = False) -> list[Event]:
        """Return the events with the writes of a checkpoint.

        With `knows` the log is not read again: `newest` was just called.
        """
        if not knows:
            self.newest()
        event_ids = self._write_event_ids.get(checkpoint_id)
        if event_ids is not None:
            return [self._event(event_id) for event_id in event_ids]
        result: list[Event] = []
        while events := self.sessions.events_of_key(
            self.sid, _key("w", checkpoint_id, len(result))
        ):
            result.append(events[0])
        self._write_event_ids.put(checkpoint_id, [event.id for event in result])
        return result

    # Writing

    def put(
        self,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        parent: str | None,
        changed: Mapping[str, Any] | None,
        *,
        tip: str | None = None,
        epoch: Claim | None = None,
    ) -> None:
        """Store a checkpoint.

        Channels that are not `changed` have their parent's values; None means that all may have
        changed.

        Args:
            checkpoint: The checkpoint.
            metadata: Its metadata.
            parent: The id of its parent.
            changed: The channels with new versions.
            tip: The newest checkpoint that the run knows, if it is to be checked; empty if the run
                found none.
            epoch: The claim of the writer, if it has one.

        Raises:
            HeadMoved: The newest checkpoint is neither `tip` nor the parent.
            LeaseLost: The claim is not the current one.
        """
        # The append is refused if there are new events, so it is tried with what is known.
        knows = tip is not None and self._seen > 0
        while True:
            try:
                self._put(checkpoint, metadata, parent, changed, tip, epoch, knows=knows)
            except PreconditionFailed as error:
                if isinstance(error, HeadMoved) and not knows:
                    raise
                knows = False
                continue
            return

    def _put(  # noqa: PLR0917 - those of `put`
        self,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        parent: str | None,
        changed: Mapping[str, Any] | None,
        tip: str | None,
        epoch: Claim | None,
        *,
        knows: bool,
    ) -> None:
        newest = self._known_newest() if knows else self.newest()
        expected: int | Unset = UNSET
        if tip is not None:
            self._check_tip(checkpoint["id"], parent, tip)
            expected = self._seen
        base = None if parent is None else self._find(parent)
        # A complete checkpoint repeats everything, but refers to stored values.
        is_complete = base is None or base.depth >= DEPTH_MAX
        step = begin_step(None if is_complete else base, parent)
        event_values = EventValues(self._stored)
        rest = {k: v for k, v in checkpoint.items() if k not in _SEPARATE_FIELDS}
        if expand_name(shorten_name(checkpoint["id"])) != checkpoint["id"]:
            # Otherwise the event key contains the id.
            step["checkpoint_id"] = checkpoint["id"]
        self._set_document(step, "rest", rest)
        self._set_document(step, "metadata", dict(metadata), tuples=True)
        for name, field in (("versions", "channel_versions"), ("seen", "versions_seen")):
            mapping = {key: _copy(value) for key, value in checkpoint[field].items()}
            before = None if is_complete or base is None else getattr(base, name)
            step.update(diff_mapping(name, before, mapping))
        new = _NewValues(event_values, {}, {})
        self._channels(step, checkpoint, base, changed, new, is_complete=is_complete)
        omit_updated_channels(step)
        if newest is not None and checkpoint["id"] < newest.id:
            step["latest"] = newest.event
        event = self._append(checkpoint["id"], step, event_values, expected, epoch)
        self._remember(event, None if is_complete else base, new)

    def put_writes(
        self,
        checkpoint_id: str,
        writes: Sequence[tuple[str, int, Any]],
        task: tuple[str, str],
        *,
        replace: bool,
        epoch: Claim | None = None,
    ) -> None:
        """Store what a task (its id and path) wrote: channels, indexes and values."""
        event_values = EventValues()
        nodes = []
        for channel, index, value in writes:
            node: Mapping[str, Any] | None = None
            if _may_have_delta(value):
                # LangGraph may store what a task wrote before the checkpoint that it ran on.
                known = self._event_ids.get(checkpoint_id)
                record = self._newest if known is None else self.record(known)
                place = None if record is None else record.places.get(channel)
                node = self._delta_node(channel, value, place, event_values)
            if node is None:
                node = write_node(value, self._serde, event_values, f"the write to {channel!r}")
            nodes.append([channel, index, node])
        event: dict[str, Any] = {"type": WRITES, "task": task[0], "path": task[1], "writes": nodes}
        if event_values.values:
            event["values"] = event_values.values
        if replace:
            event["replace"] = True
        stored = self.add_writes(checkpoint_id, event, epoch=epoch)
        for item, name in event_values.items.items():
            # The next checkpoint will contain it too.
            self._stored.put(item, (name, stored.id))

    def add_writes(
        self, checkpoint_id: str, event: Mapping[str, Any], *, epoch: Claim | None = None
    ) -> Event:
        """Append writes, unless they repeat the newest writes of the checkpoint.

        Equal writes before others are a new request: a value may be set back.
        """
        stored = self._add_unread_writes(checkpoint_id, event, epoch)
        if stored is not None:
            return stored
        while True:
            events = self.write_events(checkpoint_id)
            count = len(events)
            try:
                if events and events[-1].data["task"] == event["task"]:
                    key = _key("w", checkpoint_id, count - 1)
                    with suppress(ReplayMismatch):
                        return self.sessions.append_event(self.sid, event, key=key, epoch=epoch)
                key = _key("w", checkpoint_id, count)
                stored = self.sessions.append_event(self.sid, event, key=key, epoch=epoch)
            except ReplayMismatch:
                continue  # Another checkpointer was first.
            self._remember_writes(checkpoint_id, _with_data(stored, event), events)
            return stored

    def _add_unread_writes(
        self, checkpoint_id: str, event: Mapping[str, Any], epoch: Claim | None
    ) -> Event | None:
        """Append the first writes of a checkpoint, if nothing was appended since the last read.

        None if that is not so, or if the checkpoint has writes.
        """
        known = self._write_event_ids.get(checkpoint_id)
        if known or not self._seen:
            return None
        self._last = None
        try:
            stored = self.sessions.append_event(
                self.sid,
                event,
                expected_last_id=self._seen,
                key=_key("w", checkpoint_id),
                epoch=epoch,
            )
        except (PreconditionFailed, ReplayMismatch):
            return None
        if stored.id != self._seen + 1:
            return None  # Those of an earlier request, which may not be the newest ones.
        self._remember_writes(checkpoint_id, _with_data(stored, event), [])
        return stored

    def _remember_writes(self, checkpoint_id: str, stored: Event, earlier: Sequence[Event]) -> None:
        self._events.put(stored.id, stored)
        event_ids = [*(event.id for event in earlier), stored.id]
        self._write_event_ids.put(checkpoint_id, event_ids)
        if stored.id == self._seen + 1:
            self._seen = stored.id

    def copy_writes(self, checkpoint_id: str, target: ThreadLog) -> None:
        """Copy the pending writes of a checkpoint into another log that has the checkpoint."""
        for event in self.write_events(checkpoint_id):
            data = event.data
            if not any("delta" in node or "at" in node for _, _, node in data["writes"]):
                target.add_writes(checkpoint_id, {"type": event.type, **data})
                continue
            # Deltas refer to events of this log.
            values = value_reader(event, self._event)
            writes = [
                (channel, index, self._written_value(channel, node, values))
                for channel, index, node in data["writes"]
            ]
            task = (data["task"], data["path"])
            target.put_writes(checkpoint_id, writes, task, replace=bool(data.get("replace")))

    # Inside

    def _channels(
        self,
        step: dict[str, Any],
        checkpoint: Mapping[str, Any],
        base: CheckpointRecord | None,
        changed: Mapping[str, Any] | None,
        new: _NewValues,
        *,
        is_complete: bool,
    ) -> None:
        """Write the channels into a step."""
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        nodes: dict[str, Any] = {}
        for name, value in values.items():
            place = None if base is None else base.places.get(name)
            node: dict[str, Any] | None = None
            if (
                place is not None
                and base is not None
                and changed is not None
                and name not in changed
                and name in versions
                and versions[name] == base.versions.get(name)
            ):
                node = {"at": place}
            elif is_itemized(value):
                node = self._list_node(name, value, place, new)
            else:
                node = self._other_node(name, value, place, new)
            if is_complete or node.get("at") != place or "at" not in node:
                nodes[name] = node
        if nodes:
            step["channels"] = nodes
        gone = [] if base is None or is_complete else sorted(base.places.keys() - values.keys())
        if gone:
            step["gone"] = gone

    def _list_node(
        self, name: str, value: list[Any], place: int | None, new: _NewValues
    ) -> dict[str, Any]:
        keep, chain = 0, None
        if place is not None and self._holds_list(name, place):
            chain = self._chain(name, place)
            length = chain.lengths[place]
            keep = chain.prefix_length(length, value, self._serde, self._read)
            if keep == length == len(value):
                return {"at": place}
        if chain is None or keep < chain.lengths[place or 0]:
            node = self._delta_node(name, value, place, new.event_values, new)
            if node is not None:
                return node
        label = f"the channel {name!r}"
        node = {
            "list": [new.event_values.put(self._serde.dumps(item, label)) for item in value[keep:]]
        }
        if keep and chain is not None:
            node.update(keep=keep, on=place)
            pack = chain.pack(keep, value, self._serde, new.event_values)
            if pack is not None:
                node["pack"] = pack
        new.extended[name] = keep
        return node

    def _other_node(
        self, name: str, value: Any, place: int | None, new: _NewValues
    ) -> dict[str, Any]:
        node = self._delta_node(name, value, place, new.event_values, new)
        return node or self._whole_node(name, value, place, new.event_values)

    def _delta_node(
        self,
        name: str,
        value: Any,
        place: int | None,
        event_values: EventValues,
        new: _NewValues | None = None,
    ) -> dict[str, Any] | None:
        """Return the node of what differs from the value at a place, or None to store it whole.

        The deltas of a checkpoint (`new`) may have a pack.
        """
        if place is None or not _may_have_delta(value):
            return None
        chain = self._delta_chain(name, place)
        item, is_changed = chain.diff(value)
        if not is_changed:
            return {"at": place}
        if item is None:
            return None
        node: dict[str, Any] = {"delta": event_values.put(item), "on": place}
        if new is not None:
            new.deltas[name] = item
            pack = chain.pack(event_values)
            if pack is not None:
                node["pack"] = pack
        return node

    def _whole_node(
        self, name: str, value: Any, place: int | None, event_values: EventValues
    ) -> dict[str, Any]:
        label = f"the channel {name!r}"
        if type(value) is dict:
            return write_node(value, self._serde, event_values, label)
        item = self._serde.dumps(value, label)
        if place is not None:
            event = self._event(place)
            before = _node(event, name)
            if "value" in before:
                item_before = parse_item(before["value"], value_reader(event, self._event))
                if is_same(item_before, item):
                    return {"at": place}
        return {"value": event_values.put(item)}

    def _check_tip(self, checkpoint_id: str, parent: str | None, tip: str) -> None:
        """Raise HeadMoved if another run has stored a checkpoint since this one knew the newest.

        A run extends its own newest checkpoint, or begins at an older one while nothing is newer
        than what it has seen.
        """
        newest = self._newest
        if newest is not None and newest.id not in {parent, tip, checkpoint_id}:
            raise HeadMoved(
                f"thread session {self.sid!r}: the newest checkpoint is {newest.id}, and this run "
                f"{f'knows {tip}' if tip else 'found none'}",
                hint="Run the graph again from the newest checkpoint of the thread, or use "
                'FourfoldSaver(sessions, stale_writes="accept").',
                details={"session": self.sid, "expected": tip, "current": newest.id},
            )

    def _append(
        self,
        checkpoint_id: str,
        step: dict[str, Any],
        event_values: EventValues,
        expected: int | Unset = UNSET,
        epoch: Claim | None = None,
    ) -> Event:
        event: dict[str, Any] = {"type": "step/started", "step": step}
        if event_values.values:
            event["values"] = event_values.values
        with suppress(ReplayMismatch):
            stored = self.sessions.append_event(
                self.sid,
                event,
                expected_last_id=expected,
                key=_key("c", checkpoint_id),
                epoch=epoch,
            )
            if stored.id > self._seen:
                # All that was there when this call began has been seen: no older request is
                # repeated.
                return _with_data(stored, event)
        # The id may exist: this is a repeated request, or it replaces the step.
        while True:
            versions = list(self._versions(checkpoint_id))
            for number in (len(versions) - 1, len(versions)):
                versioned = event
                if number:
                    step_id = versions[0].entity_id
                    versioned = {**event, "type": "step/put", "step": {**step, "id": step_id}}
                with suppress(ReplayMismatch):
                    key = _key("c", checkpoint_id, number)
                    stored = self.sessions.append_event(
                        self.sid, versioned, expected_last_id=expected, key=key, epoch=epoch
                    )
                    return _with_data(stored, versioned)

    def _remember(self, event: Event, base: CheckpointRecord | None, new: _NewValues) -> None:
        record = parse_record(event, base)
        self._events.put(event.id, event)
        self._records.put(event.id, record)
        self._event_ids.put(record.id, event.id)
        if event.id == self._seen + 1:
            self._seen = event.id
            self._newest = record if record.latest is None else self._newest
        for name, keep in new.extended.items():
            chain = self._chains.get(name)
            node = _node(event, name)
            values = value_reader(event, self._event)
            items = parse_items(node["list"], values)
            if not keep:
                self._chains.put(name, Chain(event.id, [*items], {event.id: len(items)}, []))
            elif chain is not None and node["on"] in chain.lengths:
                pack = None
                if "pack" in node:
                    item = parse_item(node["pack"][2], values)
                    pack = Pack(event.id, node["pack"][0], keep, item, is_whole=True)
                self._chains.put(name, chain.extended(event.id, keep, items, pack))
        for name, item in new.deltas.items():
            deltas = self._delta_chains.get(name)
            node = _node(event, name)
            if deltas is not None and deltas.place == node["on"]:
                deltas.extend(event.id, node, item, self._read)

    def _versions(self, checkpoint_id: str) -> Iterator[Event]:
        """Yield the events that put a checkpoint, the first one first."""
        number = 0
        while events := self.sessions.events_of_key(self.sid, _key("c", checkpoint_id, number)):
            yield events[0]
            number += 1

    def _holds_list(self, name: str, place: int) -> bool:
        chain = self._chains.get(name)
        if chain is not None and place in chain.lengths:
            return True
        return "list" in _node(self._event(place), name)

    def _delta_chain(self, name: str, place: int) -> DeltaChain:
        """Return a chain whose newest value is the one at a place."""
        chain = self._delta_chains.get(name)
        if chain is None or chain.place != place:
            whole, nodes = find_whole(name, place, self._event)
            chain = DeltaChain(whole, self._value(name, whole), self._serde)
            chain.load(nodes, self._event, self._read)
            self._delta_chains.put(name, chain)
        return chain

    def _chain(self, name: str, place: int) -> Chain:
        chain = self._chains.get(name)
        if chain is None or place not in chain.lengths:
            chain = read_chain(name, place, self._event)
            self._chains.put(name, chain)
        return chain

    def _event(self, event_id: int) -> Event:
        """Return an event; its predecessors are cached too, since they are usually read next."""
        result = self._events.get(event_id)
        if result is None:
            after = max(0, event_id - _PAGE)
            page = self.sessions.events_since(self.sid, after, limit=event_id - after)
            for event in page:
                self._events.put(event.id, event)
                result = event
        if result is None or result.id != event_id:
            raise CorruptData(f"session {self.sid!r} has no event {event_id}")
        return result

    def _backwards(self, last: int, until: int) -> Iterator[Event]:
        """Yield the events from `last` down to, excluding, `until`."""
        while last > until:
            after = max(until, last - _PAGE)
            page = self.sessions.events_since(self.sid, after, limit=last - after)
            for event in reversed(page):
                self._events.put(event.id, event)
                yield event
            last = after

    def _set_document(
        self, step: dict[str, Any], name: str, value: dict[str, Any], *, tuples: bool = False
    ) -> None:
        """Write a dict as it is, readable in the log, or serialized if necessary."""
        try:
            step[name] = copy_plain(value, tuples=tuples)
        except NotPlainError:
            item = self._serde.dumps(value, f"the {name} of a checkpoint")
            step[f"{name}_item"] = {"type": item.type, "data": item.data}

    def _read(self, data: Any) -> Any:
        return self.sessions.read_payload(data)


_SEPARATE_FIELDS = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})


def _may_have_delta(value: Any) -> bool:
    """Return True if the difference to another value may be much smaller than a value."""
    kind = type(value)
    if kind is list and not _PARTS.issuperset(map(type, value)):
        return False
    try:
        return kind in _DIFFERED and weighs_at_least(value, DELTA_WEIGHT_MIN)
    except RecursionError:
        return False


_DIFFERED = frozenset({dict, list, str, bytes})
_PARTS = frozenset({dict, list, str, bytes, int, float, bool, type(None)})
"""Types of the items of a list that is compared by its parts."""


def _node(event: Event, channel: str) -> Mapping[str, Any]:
    try:
        node: Mapping[str, Any] = event.data["step"]["channels"][channel]
    except KeyError:
        raise CorruptData(
            f"event {event.id} of session {event.session!r} has no channel {channel!r}"
        ) from None
    return node


def _with_data(stored: Event, event: Mapping[str, Any]) -> Event:
    """Return a stored event with the data that was just appended, which needs no decoding.

    The data belongs to the log: whatever the caller may still change has been copied.
    """
    data = {name: value for name, value in event.items() if name != "type"}
    if "step" in data:
        data["step"] = {**data["step"], "id": stored.entity_id}
    if "values" in data:
        data["values"] = {
            name: value.ref if isinstance(value, InternedPayload) else value
            for name, value in data["values"].items()
        }
    return Event(
        stored.session,
        stored.id,
        stored.type,
        data,
        at=stored.at,
        entity_id=stored.entity_id,
        key=stored.key,
        position=stored.position,
        digest=stored.digest,
    )


def _copy(value: Any) -> Any:
    """Return a copy of a dict; return other values unchanged."""
    return dict(value) if isinstance(value, dict) else value


def _key(kind: str, checkpoint_id: str, number: int = 0) -> str:
    name = f"{kind}{shorten_name(checkpoint_id)}"
    return f"{name}#{number}" if number else name
