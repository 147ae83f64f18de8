"""The value of one channel as events hold it: a whole value, and the deltas after it.

In an event it is a *node* of this form:

    {"delta": item, "on": event, "pack": [event, count, item]}

The value is the one that the event `on` holds for this channel, after a delta. `pack` is optional:
`on` has the value of another event after these deltas. It repeats them, so that a value is read
from few events, however many changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fourfold.adapters.langgraph import deltas
from fourfold.adapters.langgraph.values import EventValues, Read, Serde
from fourfold.adapters.langgraph_items import Item, parse_item, value_reader
from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel.collector import gc_paused
from fourfold.models.sessions import Event

PACK_ITEMS_MIN: Final = 64
"""Deltas, or items of a list, that are repeated in one pack."""
PACK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of what a pack repeats."""
DELTAS_MAX: Final = 512
"""Maximum number of deltas after a whole value."""
DELTA_WEIGHT_MIN: Final = 256
"""Values of fewer bytes are always stored whole."""

Find = Callable[[int], Event]
Node = Mapping[str, Any]


class DeltaChain:
    """The values of one channel at several events: a whole value, and the deltas after it."""

    def __init__(self, place: int, base: Any, serde: Serde) -> None:
        self._serde = serde
        self._base = base
        self._deltas: list[deltas.Delta] = []
        self._sizes: list[int] = []
        self._total = 0
        self._weight = 0
        """About how many bytes a recent value had."""
        self._places: list[int | None] = [place]
        """The event of the whole value, and the event of each delta, if it is known."""
        self._newest = self._copy(base)
        self._packed = (0, place)
        """The number of deltas that the last pack covers, and where to go on from."""

    @property
    def place(self) -> int:
        """The event of the newest value."""
        place = self._places[-1]
        assert place is not None
        return place

    def holds(self, place: int) -> bool:
        """Return True if this is the value of an event."""
        return place in self._places

    def value(self, place: int) -> Any:
        """Return a copy of the value at an event."""
        with gc_paused:
            if place == self.place:
                return self._copy(self._newest)
            count = self._places.index(place)
            return self._fold(self._copy(self._base), self._deltas[:count])

    def diff(self, value: Any) -> tuple[Item | None, bool]:
        """Return the delta from the newest value to another, and whether they differ.

        The delta is None if there is nothing to store, or if the whole value should be stored.
        """
        try:
            delta = deltas.diff(self._newest, value, self._is_same)
            if delta is None:
                return None, False
            item = self._serde.dumps(delta, "a delta")
            total = self._total + item.size
            # The weight is an old one while that is enough to decide.
            if total > 2 * self._weight:
                self._weight = deltas.weigh(value)
            is_smaller = total <= 2 * self._weight and deltas.weighs_at_least(value, 2 * item.size)
        except (RecursionError, InvalidInput):
            return None, True
        return (item if is_smaller and len(self._deltas) < DELTAS_MAX else None), True

    def pack(self, event_values: EventValues) -> list[Any] | None:
        """Return the pack for the next delta, if it is time for one."""
        count, place = self._packed
        repeated = self._deltas[count:]
        if len(repeated) < PACK_ITEMS_MIN or sum(self._sizes[count:]) > PACK_BYTES_MAX:
            return None
        item = self._serde.dumps(repeated, "a pack of deltas")
        return [place, len(repeated), event_values.put(item)]

    def extend(self, place: int, node: Node, item: Item, read: Read) -> None:
        """Add the delta of a new event."""
        delta = self._serde.loads(item, read)
        if "pack" in node:
            self._packed = (len(self._deltas) + 1, place)
        self._newest = self._fold(self._newest, [delta])
        self._add(delta, item.size, place)

    def load(self, nodes: list[tuple[int, Node]], find: Find, read: Read) -> None:
        """Add the deltas of the nodes that `find_whole` returned."""
        for place, node in nodes:
            values = value_reader(find(place), find)
            if "pack" in node:
                _, count, packed = node["pack"]
                item = parse_item(packed, values)
                repeated = self._serde.loads(item, read)
                if len(repeated) != count:
                    raise CorruptData(f"event {place}: a pack has {len(repeated)} deltas")
                for number, delta in enumerate(repeated, 1):
                    known = node["on"] if number == count else None
                    self._add(delta, item.size // count, known)
                self._packed = (len(self._deltas) + 1, place)
            item = parse_item(node["delta"], values)
            self._add(self._serde.loads(item, read), item.size, place)
        self._newest = self._fold(self._newest, self._deltas)

    def _fold(self, value: Any, changes: Iterable[deltas.Delta]) -> Any:
        """Return a value, which may be changed, after copies of deltas."""
        try:
            return deltas.fold(value, map(self._copy, changes))
        except (TypeError, ValueError, LookupError) as error:
            raise CorruptData(f"event {self.place}: its deltas do not fit: {error}") from error

    def _add(self, delta: Any, size: int, place: int | None) -> None:
        self._deltas.append(delta)
        self._sizes.append(size)
        self._total += size
        self._places.append(place)

    def _is_same(self, before: Any, after: Any) -> bool:
        return self._serde.dumps(before, "a value") == self._serde.dumps(after, "a value")

    def _copy(self, value: Any) -> Any:
        return deltas.copy_tree(value, self._copy_leaf)

    def _copy_leaf(self, value: Any) -> Any:
        return self._serde.loads(self._serde.dumps(value, "a value"), _identity)


def _identity(data: Any) -> Any:
    return data


def find_whole(channel: str, place: int, find: Find) -> tuple[int, list[tuple[int, Node]]]:
    """Return the event of the whole value that a value is based on, and the nodes after it."""
    nodes: list[tuple[int, Node]] = []
    while True:
        node = find(place).data["step"].get("channels", {}).get(channel)
        if node is None:
            raise CorruptData(f"event {place}: has no value for the channel {channel!r}")
        if "delta" not in node:
            return place, nodes[::-1]
        nodes.append((place, node))
        before = node["pack"][0] if "pack" in node else node["on"]
        if not isinstance(before, int) or before >= place:
            raise CorruptData(f"event {place}: a delta must be based on an earlier event")
        place = before
