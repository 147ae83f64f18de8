"""Crash tests with real processes: a child works, reports acknowledgements, and is killed.

The child calls `ready` when it starts to work, and `acknowledge` with one line per operation, after
the call that promised it has returned. Both write directly to the pipe, so a line that the parent
reads was true before the child died, and no line is lost in a buffer. The parent ends the child
with SIGKILL, which no process can catch: at a `Moment` of its choice, or through a fault point that
the child arms from the environment.

    crash = run(script, "arguments", fault="kernel.commit.before=kill@7")
    crash = run(script, "arguments", kill=random_kill_time(random))
    assert crash.killed, crash
    crash.lines                          what the child acknowledged

The script is the code under test, and works without a pause until it is killed; `Crash.returncode`
shows one that ends by itself. The test checks what must hold after the crash.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO

import fourfold
from fourfold.kernel import failpoints
from support.forked_process import ForkedProcess

READY = "ready"
_PIPE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Moment:
    """When the parent kills the child: after a number of acknowledgements, plus seconds.

    The seconds count from the last of those acknowledgements, from `ready` if there are none, or
    from the start of the process if `ready` is not awaited either: that may hit it while it opens.
    """

    acknowledgements: int = 0
    seconds: float = 0.0
    await_ready: bool = True


@dataclass(frozen=True, slots=True)
class Crash:
    """How a child ended and what it had acknowledged before."""

    lines: tuple[str, ...]
    ready: bool
    returncode: int
    errors: str

    @property
    def killed(self) -> bool:
        """True if the child was ended by SIGKILL."""
        return self.returncode == -signal.SIGKILL


def ready() -> None:
    """Report, in the child, that everything is open and the work begins."""
    acknowledge(READY)


def acknowledge(*lines: str) -> None:
    """Report, in the child, that operations have returned; the lines are one write."""
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


def random_kill_time(random: Random, *, longest_s: float = 0.15) -> Moment:
    """Return a random time while the child works.

    Half of them are right after an acknowledgement, when the next commit is in flight.
    """
    if random.random() < 0.5:
        return Moment(acknowledgements=random.randint(1, 200))
    return Moment(seconds=random.uniform(0.0, longest_s))


def run(
    script: Path,
    *arguments: str,
    fault: str = "",
    kill: Moment | None = None,
    timeout_s: float = 120.0,
) -> Crash:
    """Run `script` until it is killed or ends by itself; raise TimeoutError otherwise."""
    with (
        tempfile.TemporaryFile() as errors,
        ForkedProcess(
            [str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(fault),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            text = _read_until_exit(process, process.stdout, kill, time.monotonic() + timeout_s)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        error_text = errors.read().decode(errors="replace")
    # A last line without its end was not written completely; it acknowledges nothing.
    lines = text.decode().split("\n")[:-1]
    return Crash(
        lines=tuple(line for line in lines if line != READY),
        ready=READY in lines,
        returncode=process.returncode,
        errors=error_text,
    )


def child_environment(fault: str = "") -> dict[str, str]:
    """Return the child's environment: the parent's Fourfold, `support`, and only these faults."""
    folders = [Path(fourfold.__file__).parents[1], Path(__file__).resolve().parents[1]]
    path = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, folders), *([path] if path else [])]),
        failpoints.ENVIRONMENT: fault,
    }
    if not fault:
        del environment[failpoints.ENVIRONMENT]
    return environment


def _read_until_exit(
    process: ForkedProcess, pipe: IO[bytes], kill: Moment | None, deadline: float
) -> bytes:
    """Return everything the child writes until it closes the pipe; kill it when it is time."""
    output = bytearray()
    lines_before_kill = _lines_before(kill)
    due = float("inf") if kill is None or lines_before_kill else time.monotonic() + kill.seconds
    line_count = 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError(
                    f"{process.args!r} neither ended nor was killed: {output[-200:]}"
                )
            if now >= due:
                process.kill()
                due = float("inf")
            if not selector.select(min(due, deadline) - now):
                continue
            chunk = os.read(pipe.fileno(), _PIPE_BYTES)
            if not chunk:
                return bytes(output)
            output += chunk
            previous_count, line_count = line_count, line_count + chunk.count(b"\n")
            if kill is not None and previous_count < lines_before_kill <= line_count:
                due = time.monotonic() + kill.seconds


def _lines_before(kill: Moment | None) -> int:
    if kill is None or not kill.await_ready:
        return 0
    return kill.acknowledgements + 1
