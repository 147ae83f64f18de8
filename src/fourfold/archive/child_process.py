"""A child process of low priority, for work that would hold the interpreter for long.

    this process: run(function, ...) ──> child: function(context, ...)
                  answers            <──        what it asks
                  result             <──

Decoding, sorting and compressing rows takes seconds, in which Python and its libraries hold the
interpreter for many milliseconds at a time: every write of this process would wait. The child has
no object store and no credentials; it asks this process, which waits without the interpreter. It
ends with this process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from fourfold.errors import FourfoldError, StorageError
from fourfold.kernel.pauses import lower_thread_priority

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
CHILD_LOOK_S: Final = 0.1
"""Interval at which a process that waits for its child looks whether it must stop."""
_RESULT: Final = "result"
_ERROR: Final = "error"


class ChildStopped(Exception):
    """The caller stops: the child was ended, and what it was working on is not there."""


class ParentProcess(Protocol):
    """The process that started a child, as the child sees it."""

    def ask(self, kind: str, *values: Any) -> Any:
        """Return the answer of the parent, or raise its error."""
        ...


class ChildProcess(Generic[C]):
    """Runs functions in a child process, which the first one starts. One thread uses it at a time.

    Args:
        open_context: Returns what each function gets first; called once in a child.
        answers: Functions that answer what the child asks, by kind.
        stop: Returns True if the caller must stop; then the child is ended.
    """

    def __init__(
        self,
        open_context: Callable[[ParentProcess], C],
        answers: Mapping[str, Callable[..., Any]],
        stop: Callable[[], bool],
    ) -> None:
        self._open_context = open_context
        self._answers = answers
        self._stop = stop
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        function: Callable[Concatenate[C, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function of a module with the context, and return its result.

        Raises:
            ChildStopped: The caller stops.
            StorageError: The process ended; the next call starts another one.
        """
        try:
            connection = self._connection or self._start()
            connection.send((function, args, kwargs))
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
                [sys.executable, "-m", "fourfold.archive.child_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C in the terminal of the parent is not for its child.
                start_new_session=True,
            )
        self._connection = ours
        ours.send(self._open_context)
        return ours

    def _serve(self, connection: Connection) -> tuple[str, Any]:
        """Answer the child until it is done, and return its outcome."""
        while True:
            while not connection.poll(CHILD_LOOK_S):
                if self._stop():
                    raise ChildStopped
            kind, value = connection.recv()
            if kind in {_RESULT, _ERROR}:
                return kind, value
            connection.send(self._answer(kind, value))

    def _answer(self, kind: str, values: tuple[Any, ...]) -> tuple[str, Any]:
        try:
            return _RESULT, self._answers[kind](*values)
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


class _ParentPipe:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, kind: str, *values: Any) -> Any:
        self._connection.send((kind, values))
        outcome, result = self._connection.recv()
        if outcome == _ERROR:
            raise result
        return result


def serve(connection: Connection) -> None:
    """Run what the parent sends, until it closes the connection."""
    lower_thread_priority()
    with suppress(EOFError, OSError):
        context = connection.recv()(_ParentPipe(connection))
        while True:
            function, args, kwargs = connection.recv()
            try:
                outcome = _RESULT, function(context, *args, **kwargs)
            except FourfoldError as error:
                outcome = _ERROR, error
            except Exception as error:  # noqa: BLE001 - it concerns this call alone
                outcome = _ERROR, StorageError(f"archive: cannot build a file: {error!r}")
            connection.send(outcome)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
