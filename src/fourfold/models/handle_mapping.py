"""Mapping access to the handles of a model by name: `[]`, `in` and iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from fourfold.errors import InvalidInput, NotFound

Handle = TypeVar("Handle")
Name = TypeVar("Name", bound="str | int")


class HandleMapping(ABC, Generic[Name, Handle]):
    """Mixin for a collection of named handles that may have a million names.

        for name in store.streams: ...       # reads a page of names at a time
        "orders" in store.streams
        store.streams["orders"].read()

    It has no `len`, which would read every name, and is always true.
    """

    @abstractmethod
    def open(self, name: Name, /) -> Handle:
        """Return a handle of an existing object."""

    @abstractmethod
    def _describe(self, name: Any, /) -> object:
        """Check the name of an object, and raise NotFound if there is no such object."""

    @abstractmethod
    def _names(self, after: str | None) -> Sequence[str]:
        """Return the names after one in the order of the list, a page at most."""

    def __getitem__(self, name: Name) -> Handle:
        """Return a handle of an existing object, like `open`."""
        return self.open(name)

    def __contains__(self, name: object) -> bool:
        try:
            self._describe(name)
        except (NotFound, InvalidInput):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the order of `list`, read in pages."""
        names = self._names(None)
        while names:
            yield from names
            names = self._names(names[-1])

    def __len__(self) -> int:
        name = type(self).__name__
        raise TypeError(
            f"{name} has no len(), which would read every name: use len(list(...)) to count them"
        )

    def __bool__(self) -> bool:
        """Always True: an empty collection is still a collection."""
        return True
