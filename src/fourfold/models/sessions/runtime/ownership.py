"""Ownership of the sessions whose turns run in this process: one turn each, under a lease.

A turn runs under a lease of its session, which is renewed while it runs. A process that claims the
session meanwhile, because this one was suspended for longer than the lease, fences it: every later
write of the turn raises LeaseLost, and nothing of it is stored.

A lease of a process of this machine that is dead is taken over at once, others when they expire.
The name of a holder is only a hint about that: the lease is released by its epoch, so it is never
taken from a worker that has claimed the session since.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from fourfold.errors import Busy, FourfoldError
from fourfold.models.sessions.runtime.ports import SessionStore


class RunningTurn:
    """The sessions with a running turn in this process: one turn each."""

    def __init__(self) -> None:
        self._sids: set[str] = set()
        self._lock = threading.Lock()
        self.token = uuid.uuid4().hex[:8]
        self.epochs: dict[str, int] = {}
        """Epochs of the leases of these sessions."""

    @contextmanager
    def one(self, sid: str) -> Iterator[None]:
        """Hold a session while one turn runs; raise if another one does."""
        with self._lock:
            if sid in self._sids:
                raise Busy(
                    f"a turn of session {sid!r} is under way",
                    hint="Wait until it is over; a session runs one turn at a time.",
                )
            self._sids.add(sid)
        try:
            yield
        finally:
            with self._lock:
                self._sids.discard(sid)

    def __contains__(self, sid: str) -> bool:
        with self._lock:
            return sid in self._sids

    @property
    def holder(self) -> str:
        """Name of the holder of the leases of these sessions: machine, process, token."""
        return f"{_machine()}/{os.getpid()}/{self.token}"

    def is_dead(self, holder: object) -> bool:
        """Return True if the holder was a runtime that certainly runs no turn any more.

        The caller has the only running turn of the session in this process.
        """
        if not isinstance(holder, str) or holder.count("/") != 2:
            return False
        machine, process, token = holder.split("/")
        if machine != _machine() or not process.isdecimal():
            return False
        if int(process) != os.getpid():
            return not _is_alive(int(process))
        with _RUNNING_LOCK:
            others = {running.token for running in _RUNNING.values()} - {self.token}
        return token not in others


_RUNNING: weakref.WeakKeyDictionary[SessionStore, RunningTurn] = weakref.WeakKeyDictionary()
_RUNNING_LOCK = threading.Lock()


def running_of(sessions: SessionStore) -> RunningTurn:
    """Return what all runtimes of the same sessions share: a session runs one turn at a time."""
    with _RUNNING_LOCK:
        return _RUNNING.setdefault(sessions, RunningTurn())


@contextmanager
def renewing(sessions: SessionStore, sid: str, epoch: int, ttl_s: float) -> Iterator[None]:
    """Renew a lease in a thread, after each third of its duration."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(ttl_s / 3):
            # A lost lease stays lost. Other failures may pass; if not, the next write reports it.
            with suppress(FourfoldError):
                sessions.renew(sid, epoch, ttl_s)

    thread = threading.Thread(target=renew, name=f"lease of {sid}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


@cache
def _machine() -> str:
    return socket.gethostname().replace("/", "-")[:100] or "localhost"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
