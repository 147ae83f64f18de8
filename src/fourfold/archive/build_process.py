"""Functions that build files of an archive from segments, in this thread or in a child process.

The child reads segments from the cache and the object store of the node, which answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fourfold.archive.cache import DiskCache
from fourfold.archive.child_process import ChildProcess, ParentProcess
from fourfold.archive.segment_reader import StoredSegments, open_segments

P = ParamSpec("P")
T = TypeVar("T")


class FileBuilder(Protocol):
    """Runs functions that build files from segments."""

    def run(
        self,
        build: Callable[Concatenate[StoredSegments, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function with the segments, and return its result."""
        ...


class DirectBuilder:
    """Builds in the calling thread."""

    def __init__(self, segments: StoredSegments) -> None:
        self._segments = segments

    def run(
        self,
        build: Callable[Concatenate[StoredSegments, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function with the segments, and return its result."""
        return build(self._segments, *args, **kwargs)


class BuildProcess(ChildProcess[StoredSegments]):
    """Builds in a child process, which the first build starts. One thread uses it at a time.

    Args:
        stop: Returns True if the node stops; then the child is ended.
    """

    def __init__(self, segments: StoredSegments, stop: Callable[[], bool]) -> None:
        cache, objects = segments.cache, segments.objects
        answers: dict[str, Callable[..., Any]] = {
            "find": cache.find,
            "drop": cache.drop,
            "get_range": objects.get_range,
        }
        super().__init__(_open_segments, answers, stop)


def _open_segments(parent: ParentProcess) -> StoredSegments:
    objects: Any = _ParentObjects(parent)  # Reads are all that is needed of an object store.
    return open_segments(objects, _ParentCache(parent))


class _ParentObjects:
    """The object store of the node."""

    def __init__(self, parent: ParentProcess) -> None:
        self._parent = parent

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data: bytes = self._parent.ask("get_range", key, start, length)
        return data


class _ParentCache(DiskCache):
    """The cache of the node; only the node writes it."""

    def __init__(self, parent: ParentProcess) -> None:
        super().__init__(Path(), 0)
        self._parent = parent

    def find(self, segment: str) -> Path | None:
        path: Path | None = self._parent.ask("find", segment)
        return path

    def drop(self, segment: str) -> None:
        self._parent.ask("drop", segment)
