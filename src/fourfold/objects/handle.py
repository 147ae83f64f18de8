"""The open or closed state that every store has, and its use as a context manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from fourfold.errors import Closed

if TYPE_CHECKING:
    from types import TracebackType


class Handle:
    """Raises Closed from every call after `close()`; closing twice is no error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}{' closed' if self._closed else ''}>"

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"object store {self._name} is closed", hint="Open the store again.")
