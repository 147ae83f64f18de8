"""The list of one channel as events hold it: each holds a part of it.

In an event it is a *node* of this form:

    {"list": [item...], "keep": n, "on": event, "pack": [start, event, item]}

The list is the first `keep` items of the list that the event `on` holds for this channel, and then
new ones. `pack` is optional: the first `keep` items are the first `start` items of the list that
another event holds, and then these. It repeats them, so that a long list is read from few events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fourfold.adapters.langgraph.delta_chain import PACK_BYTES_MAX, PACK_ITEMS_MIN
from fourfold.adapters.langgraph.values import (
    EventValues,
    Fingerprint,
    Original,
    Read,
    Serde,
    UncopiedValue,
    is_same,
    parse_items,
)
from fourfold.adapters.langgraph_items import Item, parse_item, value_reader
from fourfold.errors import CorruptData
from fourfold.kernel.collector import gc_paused
from fourfold.models.sessions import Event


class Pack(NamedTuple):
    """Items of a list that one value of an event repeats."""

    event: int
    start: int
    end: int
    """Where the items of the pack end in the list, or where the list ends that uses them."""
    item: Item
    is_whole: bool


class Chain:
    """The list of one channel at an event, and at earlier events that it starts with."""

    def __init__(
        self, tip: int, items: list[Item | None], lengths: dict[int, int], packs: list[Pack]
    ) -> None:
        self.tip = tip
        self.items = items
        """The items, None for those that only a pack holds."""
        self.lengths = lengths
        """Length of the list at each event; later events did not change these items."""
        self.packs = packs
        self._originals: list[Original | None] = []
        self._fingerprint: Fingerprint | None = Fingerprint()

    def values(self, length: int, serde: Serde, read: Read) -> list[Any]:
        """Return copies of the first items."""
        with gc_paused:
            self._load(length, serde, read)
            return [
                serde.loads(self._item(index, serde), read) if original is None else original.copy()
                for index, original in enumerate(self._originals[:length])
            ]

    def prefix_length(self, length: int, value: list[Any], serde: Serde, read: Read) -> int:
        """Return how many of the first `length` items a list starts with."""
        limit = min(length, len(value))
        if self._fingerprint is not None:
            self._load(limit, serde, read)
            self._add_fingerprints(limit)
        if self._fingerprint is not None and self._fingerprint.starts_with(value[:limit]):
            return limit
        if self.packs:
            self._load(limit, serde, read)
        for index in range(limit):
            label = f"item {index} of a list"
            if not is_same(serde.dumps(value[index], label), self._item(index, serde)):
                return index
        return limit

    def pack(
        self, keep: int, value: list[Any], serde: Serde, event_values: EventValues
    ) -> list[Any] | None:
        """Return the pack of the first `keep` items for a new event, if it is time for one.

        `value` starts with these items. Only items with a fingerprint are packed: they are the same
        in a list as alone.
        """
        start, event = 0, None
        for pack in self.packs:
            if pack.is_whole and pack.end <= keep:
                start, event = pack.end, pack.event
        items = self.items[start:keep]
        if self._fingerprint is None or len(items) < PACK_ITEMS_MIN:
            return None
        if sum(0 if item is None else item.size for item in items) > PACK_BYTES_MAX:
            return None
        item = serde.dumps(value[start:keep], "a pack of items")
        return [start, event, event_values.put(item)]

    def extended(
        self, event: int, keep: int, new: Sequence[Item], pack: Pack | None = None
    ) -> Chain:
        """Return the list of a later event: the first items of this one, and new ones."""
        if keep == len(self.items):
            chain = self
            chain.items.extend(new)
            chain.tip = event
        else:
            lengths = {
                event_id: length for event_id, length in self.lengths.items() if length <= keep
            }
            packs = [_cut(pack, keep) for pack in self.packs if pack.start < keep]
            chain = Chain(event, [*self.items[:keep], *new], lengths, packs)
            chain._originals = self._originals[:keep]
        chain.lengths[event] = len(chain.items)
        if pack is not None:
            chain.packs.append(pack)
        return chain

    def _item(self, index: int, serde: Serde) -> Item:
        """Return an item that has been loaded."""
        item = self.items[index]
        if item is None:
            original = self._originals[index]
            assert original is not None
            item = serde.dumps(original.value, "an item of a list")
        return item

    def _load(self, length: int, serde: Serde, read: Read) -> None:
        while len(self._originals) < length:
            index = len(self._originals)
            item = self.items[index]
            values = self._unpack(index, serde, read) if item is None else [serde.loads(item, read)]
            for value in values:
                try:
                    original = Original(value)
                except UncopiedValue:
                    original = None
                    index = len(self._originals)
                    self.items[index] = self.items[index] or serde.dumps(value, "an item")
                self._originals.append(original)

    def _add_fingerprints(self, length: int) -> None:
        """Add the first items, which have been loaded, to the fingerprint."""
        fingerprint = self._fingerprint
        if fingerprint is None:
            return
        for index in range(len(fingerprint), length):
            original = self._originals[index]
            if original is None or not fingerprint.add(original.value):
                self._fingerprint = None
                return

    def _unpack(self, index: int, serde: Serde, read: Read) -> list[Any]:
        """Return the items from `index` to the end of their pack."""
        for pack in self.packs:
            if pack.start <= index < pack.end:
                values = serde.loads(pack.item, read)
                if type(values) is list and len(values) >= pack.end - pack.start:
                    return values[index - pack.start : pack.end - pack.start]
                raise CorruptData(f"event {pack.event}: a pack has too few items")
        raise CorruptData(f"event {self.tip}: no pack holds item {index} of a list")


def _cut(pack: Pack, end: int) -> Pack:
    return pack if pack.end <= end else pack._replace(end=end, is_whole=False)


def read_chain(channel: str, event: int, find: Callable[[int], Event]) -> Chain:
    """Read the list that an event holds for a channel, back to its beginning."""
    parts: list[list[Item | None]] = []
    packs: list[Pack] = []
    lengths: dict[int, int] = {}
    event_id: int | None = event
    limit = None
    while event_id is not None:
        source = find(event_id)
        node = _list_node(source, channel)
        keep = node.get("keep", 0)
        part: list[Item | None] = [*parse_items(node["list"], value_reader(source, find))]
        length = keep + len(part)
        if limit is None or length <= limit:
            lengths[event_id] = length
        else:
            part = part[: max(0, limit - keep)]
        parts.append(part)
        limit = keep if limit is None else min(limit, keep)
        if limit and "pack" in node:
            packs = _read_packs(channel, source, node, find)
            parts.append([None] * limit)
            packs = [_cut(pack, limit) for pack in packs if pack.start < limit]
            break
        event_id = node.get("on") if limit else None
    items = [item for part in reversed(parts) for item in part]
    if len(items) != lengths[event]:
        raise CorruptData(f"event {event}: keeps more of the list {channel!r} than exists")
    return Chain(event, items, lengths, packs)


def _list_node(event: Event, channel: str) -> Mapping[str, Any]:
    node: Mapping[str, Any] | None = event.data["step"].get("channels", {}).get(channel)
    if node is None or "list" not in node:
        raise CorruptData(f"event {event.id}: has no list for the channel {channel!r}")
    return node


def _read_packs(
    channel: str, event: Event, node: Mapping[str, Any], find: Callable[[int], Event]
) -> list[Pack]:
    """Return the packs that hold the first `keep` items of a node, the first one first."""
    packs: list[Pack] = []
    end = node["keep"]
    while True:
        start, before, packed = node["pack"]
        item = parse_item(packed, value_reader(event, find))
        packs.append(Pack(event.id, start, end, item, is_whole=True))
        if before is None:
            break
        if not isinstance(before, int) or before >= event.id:
            raise CorruptData(f"event {event.id}: a pack must follow an earlier one")
        event = find(before)
        node = _list_node(event, channel)
        end = node.get("keep", 0)
        if "pack" not in node or end != start:
            raise CorruptData(f"event {event.id}: holds no pack until item {start}")
    if start:
        raise CorruptData(f"event {event.id}: no pack holds the first items of {channel!r}")
    return packs[::-1]
