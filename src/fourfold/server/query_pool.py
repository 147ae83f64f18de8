"""Processes that run queries of clients: a bounded number, reused, killed if they do not end.

A query runs in a process of its own, because its memory cannot be limited inside of the server. A
process is started by the first query, takes one after the other, and is replaced when it was
killed: by the deadline, by a client that disconnected, or by the system.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import errors, limits
from fourfold.errors import Busy, DeadlineExceeded, FourfoldError, Overloaded
from fourfold.server.query_messages import ENVIRONMENT, LENGTH, QueryOutcome, QueryTask

QUERIES_WAITING: Final = 16
"""Queries that may wait for a process."""
START_S: Final = 30.0
GRACE_S: Final = 3.0
WAIT_S: Final = 10.0
"""Maximum time for the start of a process, from the deadline of a query until its process is
killed, and for which a query waits for a process.
"""
_READ_BYTES: Final = limits.MIB
_KINDS: Final = {cls.kind: cls for cls in errors.tree()}


class QueryResponse(NamedTuple):
    """The result of a query, encoded."""

    body: bytes
    rows: int
    truncated: bool


class _ProcessEnded(Exception):
    """The process ended without a response."""


class QueryProcess:
    """One child process."""

    def __init__(self, root: Path, memory_bytes: int) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fourfold.server.query_process"),
                *(str(root), str(memory_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT},
            # Ctrl-C in the terminal of the server is not for its children.
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._is_ready = False
        self.is_usable = True
        """False after the process has ended, or must."""

    def run(self, task: QueryTask) -> tuple[QueryOutcome, bytes]:
        """Run one query and return its outcome and bytes.

        Raises:
            TimeoutError: it did not end in time.
            _ProcessEnded: the process ended.
        """
        try:
            if not self._is_ready:
                self._frame(time.monotonic() + START_S)
                self._is_ready = True
            data = msgspec.msgpack.encode(task)
            for part in (LENGTH.pack(len(data)), data):
                self._input.write(part)
            deadline = time.monotonic() + task.body.timeout_s + GRACE_S
            outcome = msgspec.msgpack.decode(self._frame(deadline), type=QueryOutcome)
            body = self._read(outcome.size, deadline)
        except (OSError, ValueError) as error:
            self.is_usable = False
            if isinstance(error, TimeoutError):
                raise
            raise _ProcessEnded from error
        except BaseException:
            self.is_usable = False
            raise
        self.is_usable = not outcome.ends
        return outcome, body

    def _frame(self, deadline: float) -> bytes:
        return self._read(LENGTH.unpack(self._read(LENGTH.size, deadline))[0], deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1_000):
                raise TimeoutError
            part = self._output.read(min(size - len(data), _READ_BYTES))
            if not part:
                raise _ProcessEnded
            data += part
        return bytes(data)

    def kill(self) -> None:
        """Kill the process; may be called from another thread, which then sees its end."""
        self._process.kill()

    def close(self) -> int:
        """Kill the process, wait for its end, and return its exit code."""
        self._process.kill()
        code = self._process.wait()
        self._input.close()
        self._output.close()
        return code


class _Job:
    """A query that waits or runs."""

    def __init__(self, task: QueryTask) -> None:
        self.task = task
        self.created = time.monotonic()
        self._lock = threading.Lock()
        self._process: QueryProcess | None = None
        self.is_cancelled = False

    def attach(self, process: QueryProcess | None) -> None:
        """Record the process that runs the query, or that none does any more."""
        with self._lock:
            self._process = process
            if process is not None and self.is_cancelled:
                process.kill()

    def cancel(self) -> None:
        """End the query, and with it its process."""
        with self._lock:
            self.is_cancelled = True
            if self._process is not None:
                self._process.kill()


class QueryPool:
    """The processes for queries over one store."""

    def __init__(self, root: Path, *, processes: int, memory_bytes: int) -> None:
        self._root = root
        self._memory_bytes = memory_bytes
        self._places = processes + QUERIES_WAITING
        # Of one key, so that no key takes the places of all others.
        self._share = max(1, self._places // 2)
        self._executor = ThreadPoolExecutor(processes, thread_name_prefix="fourfold-query")
        self._lock = threading.Lock()
        self._idle: list[QueryProcess] = []
        self._jobs: set[_Job] = set()
        self._by_owner: dict[str, int] = {}
        self._is_stopping = False

    async def run(self, task: QueryTask, owner: str) -> QueryResponse:
        """Run a query and return its result; if this is cancelled, so is the query.

        Args:
            owner: Id of the key, which may have a share of the places only; empty without keys.

        Raises:
            Overloaded: Too many queries are waiting.
            Busy: No process became free, or the process of the query ended.
            DeadlineExceeded: The query took longer than its timeout.
            FourfoldError: Any error of the query.
        """
        job = _Job(task)
        future = self._submit(job, owner)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            job.cancel()
            if self._is_stopping:
                # It was still waiting, and `stop` has removed it from the queue.
                raise Busy("query: the server is stopping") from None
            raise

    def stop(self) -> None:
        """Kill all processes."""
        with self._lock:
            self._is_stopping = True
            jobs, idle = list(self._jobs), self._idle
            self._idle = []
        for job in jobs:
            job.cancel()
        for process in idle:
            process.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, job: _Job, owner: str) -> Future[QueryResponse]:
        with self._lock:
            if self._is_stopping:
                raise Overloaded("the server is stopping", retry_after=limits.RETRY_AFTER_S)
            count = self._by_owner.get(owner, 0)
            if len(self._jobs) >= self._places or (owner and count >= self._share):
                raise Overloaded(
                    "too many queries are waiting",
                    hint="Run fewer queries at once.",
                    retry_after=limits.RETRY_AFTER_S,
                )
            self._jobs.add(job)
            self._by_owner[owner] = count + 1
            future = self._executor.submit(self._run, job)
        future.add_done_callback(lambda _: self._release(job, owner))
        return future

    def _release(self, job: _Job, owner: str) -> None:
        with self._lock:
            self._jobs.discard(job)
            self._by_owner[owner] -= 1
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    # In a thread of the pool

    def _run(self, job: _Job) -> QueryResponse:
        if time.monotonic() - job.created > WAIT_S:
            raise Busy(
                f"query: no process became free in {WAIT_S:g} s",
                hint="Retry later.",
                retry_after=limits.RETRY_AFTER_S,
            )
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or self._start()
        job.attach(process)
        try:
            outcome, body = process.run(job.task)
        except TimeoutError:
            raise DeadlineExceeded(
                f"query: not finished after {job.task.body.timeout_s:g} s",
                hint="Narrow the query, or raise `timeout_s`.",
            ) from None
        except _ProcessEnded:
            if job.is_cancelled:
                raise Busy("query: cancelled, because the server is stopping") from None
            raise Busy(
                "query: its process ended unexpectedly",
                hint="It may have used too much memory: narrow the query, or retry.",
            ) from None
        finally:
            job.attach(None)
            self._put_back(process)
        if outcome.error is not None:
            raise _error_of(outcome.error)
        return QueryResponse(body, outcome.rows, outcome.truncated)

    def _start(self) -> QueryProcess:
        return QueryProcess(self._root, self._memory_bytes)

    def _put_back(self, process: QueryProcess) -> None:
        """Make a process available for the next query, or replace it."""
        if not process.is_usable:
            process.close()
            if self._is_stopping:
                return
            process = self._start()
        with self._lock:
            if not self._is_stopping:
                self._idle.append(process)
                return
        process.close()


def _error_of(error: dict[str, Any]) -> FourfoldError:
    cls = _KINDS.get(error["kind"], FourfoldError)
    return cls(error["message"], hint=error["hint"], details=error.get("details"))
