"""Python processes that start at once, forked from a server that has imported Fourfold.

Starting Python and importing Fourfold takes a third of a second of a processor, and the tests start
many hundreds of processes. A forked process is real: it has its own memory, descriptors and id, and
can be killed at any time. Only its modules are loaded before it starts, so tests about imports,
about options of Python and about warnings start Python themselves.

The server is that of `multiprocessing`. It has no threads, and starts with the first process.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.process import current_process
from multiprocessing.reduction import DupFd
from pathlib import Path

PRELOADED = [
    "fourfold.cli.main",
    "fourfold.cli.options",
    "fourfold.explorer.explorer",
    "fourfold.server.models",
    "fourfold.server.run",
    "fourfold.store",
    "httpx",
    "jsonschema_rs",
    "obstore",
    "uvicorn",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
]
"""What most processes import. None of it may start a thread: a fork loses threads."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)


class ForkedProcess:
    """A process that runs `python ARGUMENTS`, with the interface of `subprocess.Popen`.

    `arguments` are a script, or `-m` and a module, and what it gets. A stream is a descriptor,
    a file, `subprocess.PIPE`, `DEVNULL` or `STDOUT`, or None for that of the tests.
    """

    def __init__(
        self, arguments, *, stdin=subprocess.DEVNULL, stdout=None, stderr=None, cwd=None, env=None
    ):
        self.args = [*map(str, arguments)]
        self.returncode = None
        self.stdout = self.stderr = None
        ours = []
        try:
            streams = [self._open(stdin, 0, ours), self._open(stdout, 1, ours)]
            same = stderr == subprocess.STDOUT
            streams.append(streams[1] if same else self._open(stderr, 2, ours))
            folder, environment = str(cwd or Path.cwd()), dict(os.environ if env is None else env)
            arguments = (self.args, folder, environment, [_Descriptor(fd) for fd in streams])
            # As a daemon it does not outlive the tests.
            self._process = _context.Process(target=_run, args=arguments, daemon=True)
            self._process.start()
        finally:
            for descriptor in ours:
                os.close(descriptor)
        self.pid = self._process.pid

    def _open(self, stream, number, ours):
        """Return the descriptor of a stream of the child; those in `ours` are closed here."""
        if stream is None:
            return number
        if stream == subprocess.DEVNULL:
            ours.append(os.open(os.devnull, os.O_RDWR))
            return ours[-1]
        if stream == subprocess.PIPE:
            read, write = os.pipe()
            ours.append(write)
            setattr(self, ("stdin", "stdout", "stderr")[number], io.FileIO(read))
            return write
        return stream if isinstance(stream, int) else stream.fileno()

    def poll(self):
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """Return what the process writes to its pipes, when it has ended."""
        output, errors = (
            None if pipe is None else pipe.readall() for pipe in (self.stdout, self.stderr)
        )
        self._close()
        self.wait(timeout)
        return output, errors

    def _close(self):
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def send_signal(self, number):
        if self.poll() is None:
            # The server may have noticed its end, and not have reported it yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._close()
        self.wait()


class _Descriptor:
    """A descriptor that is duplicated into the child."""

    def __init__(self, number):
        self._number = number

    def __reduce__(self):
        return _detach, (DupFd(self._number),)


def _detach(duplicate):
    return duplicate.detach()


def _run(arguments, folder, environment, streams):
    """Become `python ARGUMENTS`: replace what the process has from its parent, and run."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in set(streams):
        os.close(descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A daemon could start no processes by `multiprocessing`.
    current_process()._config["daemon"] = False
    from fourfold.kernel import failpoints  # noqa: PLC0415 - its import reads the environment

    failpoints.arm_from_environment(environment.get(failpoints.ENVIRONMENT))
    path = environment.get("PYTHONPATH")
    sys.path[:0] = path.split(os.pathsep) if path else []
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
