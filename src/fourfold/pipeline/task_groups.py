"""Grouping of work into tasks of about equal size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def pack(items: Iterable[tuple[int, T]], limit: int) -> Iterator[list[T]]:
    """Yield consecutive items, each given with its cost, in groups that cost at most `limit`.

    An item that costs more is a group by itself.
    """
    group: list[T] = []
    total = 0
    for cost, item in items:
        if group and total + cost > limit:
            yield group
            group, total = [], 0
        group.append(item)
        total += cost
    if group:
        yield group
