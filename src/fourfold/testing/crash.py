"""Crash tests with real processes: a child works, says what was acknowledged, and is killed.

The child calls `ready` when it starts to work, and `acknowledge` with one line per operation, after
the call that promised it has returned. Both write straight to the pipe, so a line that the parent
reads was true before the child died, and no line is lost with a buffer. The parent ends the child
with SIGKILL, which no process can catch: at a `Moment` of its own choice, or through a fault point
that the child arms for itself from the environment.

    crash = run(script, "arguments", fault="kernel.commit.before=kill@7")
    crash = run(script, "arguments", kill=random_moment(random))
    assert crash.killed, crash
    crash.lines                          what the child acknowledged

The script is whatever is tested, and works without a pause until it is killed; one that ends by
itself shows in `Crash.returncode`. What must hold after the crash is for the test to check.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO

from fourfold.kernel import failpoints

READY = "ready"
_PIPE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Moment:
    """When the parent kills: after so many acknowledgements, then so many seconds later.

    The seconds count from the last of those acknowledgements, from `ready` if there are none, or
    from the start of the process if `ready` is not awaited either: that may hit it while it opens.
    """

    acknowledgements: int = 0
    seconds: float = 0.0
    await_ready: bool = True


@dataclass(frozen=True, slots=True)
class Crash:
    """How a child ended and what it had acknowledged by then."""

    lines: tuple[str, ...]
    ready: bool
    returncode: int
    errors: str

    @property
    def killed(self) -> bool:
        return self.returncode == -signal.SIGKILL


def ready() -> None:
    """In the child: everything is open and the work begins now."""
    acknowledge(READY)


def acknowledge(*lines: str) -> None:
    """In the child: these operations have returned. The lines leave in one write."""
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


def random_moment(random: Random, *, longest_s: float = 0.15) -> Moment:
    """Some moment while the child works: half of them right after an acknowledgement, when the next
    commit is on its way; the others anywhere in time.
    """
    if random.random() < 0.5:
        return Moment(acknowledgements=random.randint(1, 200))
    return Moment(seconds=random.uniform(0.0, longest_s))


def run(
    script: Path,
    *arguments: str,
    fault: str = "",
    kill: Moment | None = None,
    give_up_s: float = 120.0,
) -> Crash:
    """Run `script` until it is killed, or ends by itself; TimeoutError when neither happens."""
    command = [sys.executable, str(script), *arguments]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(fault),
            bufsize=0,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            text = _listen(process, process.stdout, kill, time.monotonic() + give_up_s)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    # A last line without its end was never written whole; it acknowledges nothing.
    lines = text.decode().split("\n")[:-1]
    return Crash(
        lines=tuple(line for line in lines if line != READY),
        ready=READY in lines,
        returncode=process.returncode,
        errors=said,
    )


def _environment(fault: str) -> dict[str, str]:
    """The child runs the same Fourfold as the parent, with only the faults that are asked for."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in (here, path) if part),
        failpoints.ENVIRONMENT: fault,
    }
    if not fault:
        del environment[failpoints.ENVIRONMENT]
    return environment


def _listen(
    process: subprocess.Popen[bytes], pipe: IO[bytes], kill: Moment | None, give_up: float
) -> bytes:
    """Everything the child says until its end of the pipe is closed, killing it when it is time."""
    heard = bytearray()
    wanted = _lines_before(kill)
    due = float("inf") if kill is None or wanted else time.monotonic() + kill.seconds
    counted = 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= give_up:
                raise TimeoutError(f"{process.args!r} neither ended nor was killed: {heard[-200:]}")
            if now >= due:
                process.kill()
                due = float("inf")
            if not selector.select(min(due, give_up) - now):
                continue
            piece = os.read(pipe.fileno(), _PIPE_BYTES)
            if not piece:
                return bytes(heard)
            heard += piece
            before, counted = counted, counted + piece.count(b"\n")
            if kill is not None and before < wanted <= counted:
                due = time.monotonic() + kill.seconds


def _lines_before(kill: Moment | None) -> int:
    if kill is None or not kill.await_ready:
        return 0
    return kill.acknowledgements + 1
