"""One namespace of a LangGraph thread: a session, whose steps are checkpoints.

Everything is read from the session's log; what is remembered here only saves reading it again. The
log is asked at every call whether it has grown, so any number of these may stand on one session.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from fourfold import limits
from fourfold.adapters.langgraph.records import (
    DEPTH_MAX,
    Record,
    base_of,
    changes,
    difference,
    is_checkpoint,
    record_of,
    shorten,
)
from fourfold.adapters.langgraph.values import (
    Chain,
    Item,
    Serde,
    Shelf,
    chain_of,
    is_itemized,
    is_plain,
    item_of,
    items_of,
    same,
    value_of,
    values_of,
    written,
)
from fourfold.adapters.session_ids import long, short
from fourfold.errors import CorruptData, NotFound, ReplayMismatch
from fourfold.models.sessions import Event, Sessions

WRITES = "langgraph/writes"
_PAGE = 64
V = TypeVar("V")

Write = tuple[str, str, int, str, Any]
"""Path and id of the task, the index of the write, its channel, its value."""


class StoredCheckpoint(OrderedDict[Any, V], Generic[V]):
    """The newest entries of a mapping, so many and no more."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, name: Any, value: V) -> None:
        super().__setitem__(name, value)
        self.move_to_end(name)
        if len(self) > self._most:
            self.popitem(last=False)


class ThreadLog:
    """A session of checkpoints. Its caller holds `lock`."""

    def __init__(
        self, sessions: Sessions, sid: str, serde: Serde, lock: threading.RLock | None = None
    ) -> None:
        self.sessions = sessions
        self.sid = sid
        self.lock = lock or threading.RLock()
        self._serde = serde
        self._events: StoredCheckpoint[Event] = StoredCheckpoint(limits.ADAPTER_EVENTS_MAX)
        self._records: StoredCheckpoint[Record] = StoredCheckpoint(limits.ADAPTER_EVENTS_MAX)
        self._places: StoredCheckpoint[int] = StoredCheckpoint(limits.ADAPTER_EVENTS_MAX)
        self._written: StoredCheckpoint[list[int]] = StoredCheckpoint(limits.ADAPTER_EVENTS_MAX)
        """The events with the writes of a checkpoint, where all of them are known."""
        self._chains: StoredCheckpoint[Chain] = StoredCheckpoint(limits.ADAPTER_LISTS_MAX)
        self._stored: StoredCheckpoint[tuple[str, int]] = StoredCheckpoint(limits.ADAPTER_LISTS_MAX)
        self._newest: Record | None = None
        self._seen = 0

    # Reading

    def exists(self) -> bool:
        try:
            self.sessions.current_view(self.sid)
        except NotFound:
            return False
        return True

    def newest(self) -> Record | None:
        """The checkpoint with the greatest id."""
        last = self.sessions.current_view(self.sid).counters.event
        if last != self._seen:
            found: Record | None = None
            for event in self._backwards(last, self._seen):
                if is_checkpoint(event):
                    record = self.record(event.id)
                    if found is None:
                        found = self._newest = self.record(record.newest)
                        if not self._seen:
                            break
                    # Somebody else may have put again what is known here.
                    self._places.pop(record.id, None)
                elif event.type == WRITES:
                    self._written.clear()
            self._seen = last
        return self._newest

    def find(self, checkpoint_id: str) -> Record | None:
        """A checkpoint by its id, as it was put last."""
        self.newest()
        known = self._places.get(checkpoint_id)
        if known is None:
            for event in self._versions(checkpoint_id):
                known = self._places[checkpoint_id] = event.id
        return None if known is None else self.record(known)

    def record(self, event_id: int) -> Record:
        """The checkpoint of an event, put together from those that it stands on."""
        waiting: list[Event] = []
        base: Record | None = None
        at: int | None = event_id
        while at is not None:
            base = self._records.get(at)
            if base is not None:
                break
            waiting.append(self._event(at))
            at = base_of(waiting[-1])
        for event in reversed(waiting):
            base = self._records[event.id] = record_of(event, base)
        assert base is not None
        return base

    def records(self, before: str | None = None) -> Iterator[Record]:
        """Checkpoints, those with the greatest ids first."""
        last = self.sessions.current_view(self.sid).counters.event
        seen: set[str] = set()
        late: list[Record] = []
        for event in self._backwards(last, 0):
            if not is_checkpoint(event):
                continue
            record = self.record(event.id)
            if record.id in seen:
                continue
            seen.add(record.id)
            if record.latest is not None or late:
                # From here on ids may come in any order, but none is greater than those before.
                late.append(record)
            elif before is None or record.id < before:
                yield record
        late.sort(key=lambda record: record.id, reverse=True)
        yield from (record for record in late if before is None or record.id < before)

    def values(self, places: Mapping[str, int]) -> dict[str, Any]:
        """The values of channels, each from the event that holds it."""
        found = {}
        for name, place in places.items():
            chain = self._chains.get(name)
            if chain is not None and place in chain.lengths:
                found[name] = chain.values(chain.lengths[place], self._serde, self._read)
                continue
            event = self._event(place)
            node = _node(event, name)
            if "list" in node:
                chain = self._chain(name, place)
                found[name] = chain.values(chain.lengths[place], self._serde, self._read)
            else:
                values = values_of(event, self._event)
                found[name] = value_of(node, values, self._serde, self._read)
        return found

    def told(self, kept: Any) -> dict[str, Any]:
        """What `_tell` wrote: a value of its own."""
        name, value = kept
        if name == "plain":
            return copy.deepcopy(value)
        item = Item(value["type"], value["data"])
        found: dict[str, Any] = self._serde.loads(item, self._read)
        return found

    def writes(self, checkpoint_id: str) -> list[Write]:
        """The pending writes of a checkpoint, in the order in which they are applied."""
        found: dict[tuple[str, int], Write] = {}
        for event in self.write_events(checkpoint_id):
            data = event.data
            values = values_of(event, self._event)
            for channel, index, node in data["writes"]:
                place = (data["task"], index)
                if data.get("replace") or place not in found:
                    value = value_of(node, values, self._serde, self._read)
                    found[place] = (data["path"], data["task"], index, channel, value)
        return sorted(found.values(), key=lambda write: write[:3])

    def write_events(self, checkpoint_id: str) -> list[Event]:
        self.newest()
        known = self._written.get(checkpoint_id)
        if known is not None:
            return [self._event(each) for each in known]
        found: list[Event] = []
        while events := self.sessions.events_of_key(self.sid, _key("w", checkpoint_id, len(found))):
            found.append(events[0])
        self._written[checkpoint_id] = [event.id for event in found]
        return found

    # Writing

    def put(
        self,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        parent: str | None,
        changed: Mapping[str, Any] | None,
    ) -> None:
        """Store a checkpoint. Channels that are not `changed` have their parent's values; with None
        each of them may be.
        """
        newest = self.newest()
        base = None if parent is None else self.find(parent)
        # One that stands alone says everything, but refers to values that are there.
        alone = base is None or base.depth >= DEPTH_MAX
        step = difference(None if alone else base, parent)
        shelf = Shelf(self._stored)
        rest = {k: v for k, v in checkpoint.items() if k not in _APART}
        if long(short(checkpoint["id"])) != checkpoint["id"]:
            # Otherwise the key of the event tells it.
            step["checkpoint_id"] = checkpoint["id"]
        self._tell(step, "rest", rest)
        self._tell(step, "metadata", dict(metadata), tuples=True)
        for name, field in (("versions", "channel_versions"), ("seen", "versions_seen")):
            given = {key: _own(value) for key, value in checkpoint[field].items()}
            before = None if alone or base is None else getattr(base, name)
            step.update(changes(name, before, given))
        grown = self._channels(step, checkpoint, base, changed, shelf, alone=alone)
        shorten(step)
        if newest is not None and checkpoint["id"] < newest.id:
            step["latest"] = newest.event
        event = self._append(checkpoint["id"], step, shelf)
        self._remember(event, None if alone else base, grown)

    def put_writes(
        self,
        checkpoint_id: str,
        writes: Sequence[tuple[str, int, Any]],
        task: tuple[str, str],
        *,
        replace: bool,
    ) -> None:
        """Keep what a task (its id and path) wrote: channels, indexes and values."""
        shelf = Shelf()
        listed = []
        for channel, index, value in writes:
            node = written(value, self._serde, shelf, f"the write to {channel!r}")
            listed.append([channel, index, node])
        event: dict[str, Any] = {"type": WRITES, "task": task[0], "path": task[1], "writes": listed}
        if shelf.values:
            event["values"] = shelf.values
        if replace:
            event["replace"] = True
        kept = self.add_writes(checkpoint_id, event)
        for item, name in shelf.items.items():
            # The next checkpoint is going to hold it too.
            self._stored[item] = (name, kept.id)

    def add_writes(self, checkpoint_id: str, event: Mapping[str, Any]) -> Event:
        """Append writes, unless they are the newest of the checkpoint: then they were sent again.

        Equal writes before others are another request: an answer may be taken back.
        """
        while True:
            known = self.write_events(checkpoint_id)
            count = len(known)
            try:
                if known and known[-1].data["task"] == event["task"]:
                    key = _key("w", checkpoint_id, count - 1)
                    with suppress(ReplayMismatch):
                        return self.sessions.append_event(self.sid, event, key=key)
                key = _key("w", checkpoint_id, count)
                kept = self.sessions.append_event(self.sid, event, key=key)
            except ReplayMismatch:
                continue  # Another checkpointer was faster.
            self._events[kept.id] = kept
            self._written[checkpoint_id] = [*(each.id for each in known), kept.id]
            if kept.id == self._seen + 1:
                self._seen = kept.id
            return kept

    # Inside

    def _channels(
        self,
        step: dict[str, Any],
        checkpoint: Mapping[str, Any],
        base: Record | None,
        changed: Mapping[str, Any] | None,
        shelf: Shelf,
        *,
        alone: bool,
    ) -> dict[str, int]:
        """Write the channels into a step; of lists that grew, how much of each is kept."""
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        nodes: dict[str, Any] = {}
        grown: dict[str, int] = {}
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
                node = self._list_node(name, value, place, shelf, grown)
            else:
                node = self._whole_node(name, value, place, shelf)
            if alone or node.get("at") != place or "at" not in node:
                nodes[name] = node
        if nodes:
            step["channels"] = nodes
        gone = [] if base is None or alone else sorted(base.places.keys() - values.keys())
        if gone:
            step["gone"] = gone
        return grown

    def _list_node(
        self, name: str, value: list[Any], place: int | None, shelf: Shelf, grown: dict[str, int]
    ) -> dict[str, Any]:
        keep = 0
        if place is not None and self._holds_list(name, place):
            chain = self._chain(name, place)
            length = chain.lengths[place]
            keep = chain.kept(length, value, self._serde, self._read)
            if keep == length == len(value):
                return {"at": place}
        what = f"the channel {name!r}"
        node: dict[str, Any] = {
            "list": [shelf.put(self._serde.dumps(each, what)) for each in value[keep:]]
        }
        if keep:
            node.update(keep=keep, on=place)
        grown[name] = keep
        return node

    def _whole_node(self, name: str, value: Any, place: int | None, shelf: Shelf) -> dict[str, Any]:
        what = f"the channel {name!r}"
        if type(value) is dict:
            return written(value, self._serde, shelf, what)
        item = self._serde.dumps(value, what)
        if place is not None:
            event = self._event(place)
            before = _node(event, name)
            if "value" in before:
                held = item_of(before["value"], values_of(event, self._event))
                if same(held, item):
                    return {"at": place}
        return {"value": shelf.put(item)}

    def _append(self, checkpoint_id: str, step: dict[str, Any], shelf: Shelf) -> Event:
        event: dict[str, Any] = {"type": "step/started", "step": step}
        if shelf.values:
            event["values"] = shelf.values
        last = self.sessions.current_view(self.sid).counters.event
        with suppress(ReplayMismatch):
            kept = self.sessions.append_event(self.sid, event, key=_key("c", checkpoint_id))
            if kept.id > last:
                return kept
        # The id was put before: this is that request again, or it replaces the step.
        while True:
            versions = list(self._versions(checkpoint_id))
            for number in (len(versions) - 1, len(versions)):
                given = event
                if number:
                    step_id = versions[0].entity_id
                    given = {**event, "type": "step/put", "step": {**step, "id": step_id}}
                with suppress(ReplayMismatch):
                    key = _key("c", checkpoint_id, number)
                    return self.sessions.append_event(self.sid, given, key=key)

    def _remember(self, event: Event, base: Record | None, grown: dict[str, int]) -> None:
        record = record_of(event, base)
        self._events[event.id] = event
        self._records[event.id] = record
        self._places[record.id] = event.id
        if event.id == self._seen + 1:
            self._seen = event.id
            self._newest = record if record.latest is None else self._newest
        for name, keep in grown.items():
            chain = self._chains.get(name)
            node = _node(event, name)
            items = items_of(node["list"], values_of(event, self._event))
            if not keep:
                self._chains[name] = Chain(event.id, items, {event.id: len(items)})
            elif chain is not None and node["on"] in chain.lengths:
                self._chains[name] = chain.grown(event.id, keep, items)

    def _versions(self, checkpoint_id: str) -> Iterator[Event]:
        """The events that put a checkpoint, the first one first."""
        number = 0
        while events := self.sessions.events_of_key(self.sid, _key("c", checkpoint_id, number)):
            yield events[0]
            number += 1

    def _holds_list(self, name: str, place: int) -> bool:
        chain = self._chains.get(name)
        if chain is not None and place in chain.lengths:
            return True
        return "list" in _node(self._event(place), name)

    def _chain(self, name: str, place: int) -> Chain:
        chain = self._chains.get(name)
        if chain is None or place not in chain.lengths:
            chain = self._chains[name] = chain_of(name, place, self._event)
        return chain

    def _event(self, event_id: int) -> Event:
        """An event, with its neighbours, since who asks for one goes on to those before it."""
        found = self._events.get(event_id)
        if found is None:
            after = max(0, event_id - _PAGE)
            page = self.sessions.events_since(self.sid, after, limit=event_id - after)
            for event in page:
                self._events[event.id] = found = event
        if found is None or found.id != event_id:
            raise CorruptData(f"session {self.sid!r} has no event {event_id}")
        return found

    def _backwards(self, last: int, until: int) -> Iterator[Event]:
        """The events from `last` back to the one behind `until`."""
        while last > until:
            after = max(until, last - _PAGE)
            page = self.sessions.events_since(self.sid, after, limit=last - after)
            for event in reversed(page):
                self._events[event.id] = event
                yield event
            last = after

    def _tell(
        self, step: dict[str, Any], name: str, value: dict[str, Any], *, tuples: bool = False
    ) -> None:
        """Write a dict as it is, so that it can be read in the log; or serialised, if it must."""
        if is_plain(value, tuples=tuples):
            step[name] = value
        else:
            item = self._serde.dumps(value, f"the {name} of a checkpoint")
            step[f"{name}_item"] = {"type": item.type, "data": item.data}

    def _read(self, data: Any) -> Any:
        return self.sessions.read_payload(data)


_APART = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})


def _node(event: Event, channel: str) -> Mapping[str, Any]:
    try:
        node: Mapping[str, Any] = event.data["step"]["channels"][channel]
    except KeyError:
        raise CorruptData(
            f"event {event.id} of session {event.session!r} has no channel {channel!r}"
        ) from None
    return node


def _own(value: Any) -> Any:
    """A value that nobody else holds."""
    return dict(value) if isinstance(value, dict) else value


def _key(kind: str, checkpoint_id: str, number: int = 0) -> str:
    name = f"{kind}{short(checkpoint_id)}"
    return f"{name}#{number}" if number else name
