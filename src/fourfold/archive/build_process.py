"""A process of low priority that builds files of an archive.

    node: run(build, task, ...) ──> child: build(segments, task, ...)
          cache, object store   <──        the bytes that it reads
          result                <──

Decoding, sorting and compressing a segment takes about a second, in which Python and its libraries
hold the interpreter for many milliseconds at a time: every append of the node would wait. The child
has no object store of its own; the node reads for it, and waits without the interpreter. It ends
with its node.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from fourfold.archive.cache import DiskCache
from fourfold.archive.segment_reader import StoredSegments, open_segments
from fourfold.errors import FourfoldError, StorageError
from fourfold.kernel.pauses import lower_thread_priority

P = ParamSpec("P")
T = TypeVar("T")
BUILD_LOOK_S: Final = 0.1
"""Interval at which a waiting node looks whether it must stop."""
_RESULT: Final = "result"
_ERROR: Final = "error"


class BuildStopped(Exception):
    """The node stops: the process was ended, and what it was building is not there."""


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


class BuildProcess:
    """Builds in a child process, which the first build starts. One thread uses it at a time.

    Args:
        stop: Returns True if the node stops; then the child is ended.
    """

    def __init__(self, segments: StoredSegments, stop: Callable[[], bool]) -> None:
        self._segments = segments
        self._stop = stop
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        build: Callable[Concatenate[StoredSegments, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function of a module with segments, and return its result.

        Raises:
            BuildStopped: The node stops.
            StorageError: The process ended; the next build starts another one.
        """
        try:
            connection = self._connection or self._start()
            connection.send((build, args, kwargs))
            outcome, value = self._serve(connection)
        except (OSError, EOFError) as error:
            self.close()
            raise StorageError(
                f"archive: the process that builds files ended: {error!r}"
            ) from error
        if outcome == _ERROR:
            raise value
        result: T = value
        return result

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "fourfold.archive.build_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C in the terminal of the node is not for its child.
                start_new_session=True,
            )
        self._connection = ours
        return ours

    def _serve(self, connection: Connection) -> tuple[str, Any]:
        """Read what the child needs until it is done, and return its outcome."""
        while True:
            while not connection.poll(BUILD_LOOK_S):
                if self._stop():
                    raise BuildStopped
            kind, value = connection.recv()
            if kind in {_RESULT, _ERROR}:
                return kind, value
            connection.send(self._read(kind, value))

    def _read(self, kind: str, value: tuple[Any, ...]) -> tuple[str, Any]:
        try:
            return _RESULT, _READS[kind](self._segments, *value)
        except FourfoldError as error:
            return _ERROR, error

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if child is not None:
            child.kill()
            child.wait()


_READS: Final[dict[str, Callable[..., Any]]] = {
    "find": lambda segments, segment: segments.cache.find(segment),
    "drop": lambda segments, segment: segments.cache.drop(segment),
    "get_range": lambda segments, key, start, length: segments.objects.get_range(
        key, start, length
    ),
}
"""What the child may ask of the node."""


class _ParentNode:
    """The node, as the child sees it: its cache and its object store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, kind: str, *value: Any) -> Any:
        self._connection.send((kind, value))
        outcome, result = self._connection.recv()
        if outcome == _ERROR:
            raise result
        return result

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data: bytes = self.ask("get_range", key, start, length)
        return data


class _ParentCache(DiskCache):
    """The cache of the node; only the node writes it."""

    def __init__(self, node: _ParentNode) -> None:
        super().__init__(Path(), 0)
        self._node = node

    def find(self, segment: str) -> Path | None:
        path: Path | None = self._node.ask("find", segment)
        return path

    def drop(self, segment: str) -> None:
        self._node.ask("drop", segment)


def serve(connection: Connection) -> None:
    """Build what the node sends, until it closes the connection."""
    lower_thread_priority()
    node = _ParentNode(connection)
    objects: Any = node  # Reads are all that is needed of an object store.
    segments = open_segments(objects, _ParentCache(node))
    with suppress(EOFError, OSError):
        while True:
            build, args, kwargs = connection.recv()
            try:
                outcome = _RESULT, build(segments, *args, **kwargs)
            except FourfoldError as error:
                outcome = _ERROR, error
            except Exception as error:  # noqa: BLE001 - it concerns this build alone
                outcome = _ERROR, StorageError(f"archive: cannot build a file: {error!r}")
            connection.send(outcome)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
