"""What everybody shares who follows a log: iteration, for threads and for coroutines, and an end.

A subclass says what comes next; that is all it must say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Following(ABC, Generic[T]):
    """An iterator over what a log brings, which waits for more."""

    _timeout: float | None = None
    """Seconds without anything new after which an iteration ends."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """What comes next; None when nothing came in time, or nothing will come any more."""

    @abstractmethod
    async def next_async(self, timeout: float | None = None) -> T | None:  # noqa: ASYNC109
        """The same for coroutines."""

    @abstractmethod
    def close(self) -> None:
        """End it: whoever waits gets nothing more."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        found = self.next(self._timeout)
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        found = await self.next_async(self._timeout)
        if found is None:
            raise StopAsyncIteration
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
