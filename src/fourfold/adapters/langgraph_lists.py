"""Lists that grow, put together from the events that each hold a part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fourfold.adapters.langgraph_copies import Fingerprint, Original, Uncopied, collector_paused
from fourfold.adapters.langgraph_values import Item, Serde, Values, items_of, same
from fourfold.errors import CorruptData
from fourfold.models.sessions import Event

Read = Callable[[Any], Any]


class Chain:
    """The list of one channel up to one event, and with it the lists of earlier events that it
    begins with.
    """

    def __init__(self, tip: int, items: list[Item], lengths: dict[int, int]) -> None:
        self.tip = tip
        self.items = items
        self.lengths = lengths
        """How long the list was at each event. Later events left these items alone."""
        self._originals: list[Original | None] = []
        self._fingerprint: Fingerprint | None = Fingerprint()

    def values(self, length: int, serde: Serde, read: Read) -> list[Any]:
        """The first items, as values of their own."""
        with collector_paused:
            self._load(length, serde, read)
            return [
                serde.loads(self.items[at], read) if original is None else original.copy()
                for at, original in enumerate(self._originals[:length])
            ]

    def kept(self, length: int, value: list[Any], serde: Serde, read: Read) -> int:
        """With how many of the first `length` items a list begins."""
        most = min(length, len(value))
        if self._fingerprint is not None:
            self._load(most, serde, read)
        if self._fingerprint is not None and self._fingerprint.covers(value[:most]):
            return most
        for at in range(most):
            if not same(serde.dumps(value[at], f"item {at} of a list"), self.items[at]):
                return at
        return most

    def grown(self, event: int, keep: int, new: Sequence[Item]) -> Chain:
        """The list of a later event: the first items of this one, and new ones."""
        if keep == len(self.items):
            self.items.extend(new)
            self.lengths[event] = len(self.items)
            self.tip = event
            return self
        lengths = {at: length for at, length in self.lengths.items() if length <= keep}
        chain = Chain(event, [*self.items[:keep], *new], lengths)
        chain.lengths[event] = len(chain.items)
        chain._originals = self._originals[:keep]
        return chain

    def _load(self, length: int, serde: Serde, read: Read) -> None:
        for at in range(len(self._originals), length):
            value = serde.loads(self.items[at], read)
            try:
                self._originals.append(Original(value))
            except Uncopied:
                self._originals.append(None)
        prints = self._fingerprint
        if prints is None:
            return
        for at in range(len(prints), length):
            original = self._originals[at]
            if original is None or not prints.add(original.value):
                self._fingerprint = None
                return


def values_of(event: Event, find: Callable[[int], Event]) -> Values:
    """The larger values that an event holds, or refers to."""

    def value(name: str, elsewhere: int | None = None) -> Any:
        holder = event if elsewhere is None else find(elsewhere)
        return holder.data["values"][name]

    return value


def chain_of(channel: str, event: int, find: Callable[[int], Event]) -> Chain:
    """The list that an event holds for a channel, walked back to its beginning."""
    parts: list[list[Item]] = []
    lengths: dict[int, int] = {}
    at: int | None = event
    most = None
    while at is not None:
        held = find(at)
        node = held.data["step"].get("channels", {}).get(channel)
        if node is None or "list" not in node:
            raise CorruptData(f"event {at} holds no list for the channel {channel!r}")
        keep = node.get("keep", 0)
        own = items_of(node["list"], values_of(held, find))
        length = keep + len(own)
        if most is None or length <= most:
            lengths[at] = length
        else:
            own = own[: max(0, most - keep)]
        parts.append(own)
        most = keep if most is None else min(most, keep)
        at = node.get("on") if most else None
    items = [item for part in reversed(parts) for item in part]
    if len(items) != lengths[event]:
        raise CorruptData(f"event {event} keeps more of the list {channel!r} than there was")
    return Chain(event, items, lengths)
