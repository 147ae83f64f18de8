"""Background sync: keeps this node in step with several peers, until it is stopped.

Each peer has threads of its own, so one that is slow or gone delays no other. A round runs when
this node has new rows or entries, when the peer sends a hint, and every half minute. What is still
to be exchanged is never stored: it follows from what both nodes have, so a restart loses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple, Self

from fourfold.client.remote import connect
from fourfold.client.sync_round import PeerSync, SyncReport
from fourfold.client.threads.remote_sync import RemoteSync
from fourfold.errors import FourfoldError
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.sync.keys import Signer
from fourfold.retry import pause_after

SYNC_EVERY_S: Final = 30.0
"""Interval of rounds while nothing happens."""
SYNC_AUDIT_S: Final = 600.0
"""Interval at which what was refused is tried again."""
SYNC_PAUSE_S: Final = 0.2
SYNC_PAUSE_MAX_S: Final = 30.0
"""First and longest pause after a failure."""
SYNC_RETRY_S: Final = 2.0
"""Time for which one request is retried before the round fails."""
_NOTICE_S: Final = 1.0
"""Longest time until a commit of another process is noticed."""

_log = logging.getLogger("fourfold.sync")


class SyncTarget(NamedTuple):
    """A peer to keep in step with: its number here, its URL, and its key for this node."""

    peer_id: int
    url: str
    key: str | None


class PeerStatus(NamedTuple):
    """Progress of sync with a peer."""

    peer_id: int
    url: str
    rounds: int
    reports: tuple[SyncReport, ...]
    """The last report of each domain."""
    error: FourfoldError | None
    """Why the last round failed; None if it did not."""

    @property
    def in_step(self) -> bool:
        """True if the last round left both with the same entries in every domain."""
        return self.error is None and self.rounds > 0 and all(r.in_step for r in self.reports)


class SyncRunner:
    """Rounds with several peers in the background. Use it in a `with` block.

    Args:
        graphs: The graphs of this node, opened for writing.
        targets: The peers.
        signer: Key of the identity whose new rows are signed as they are written; None only
            forwards what others signed.
        every_s: Interval of rounds while nothing happens.
        on_status: Called after each round, from the thread of its peer.
    """

    def __init__(
        self,
        graphs: Graphs,
        targets: Iterable[SyncTarget],
        signer: Signer | None = None,
        *,
        every_s: float = SYNC_EVERY_S,
        on_status: Callable[[PeerStatus], None] | None = None,
    ) -> None:
        self._graphs = graphs
        self._signer = signer
        self._stop = threading.Event()
        self._peers = [
            _PeerLoop(graphs, target, signer, stop=self._stop, every_s=every_s, on_status=on_status)
            for target in targets
        ]
        self._watcher = threading.Thread(target=self._watch, name="fourfold-sync", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the threads."""
        self._watcher.start()
        for peer in self._peers:
            peer.start()

    def stop(self) -> None:
        """End the rounds, and wait for their threads. Idempotent."""
        self._stop.set()
        self._graphs.notifier.notify()
        for peer in self._peers:
            peer.stop()
        if self._watcher.is_alive():
            self._watcher.join()

    def status(self) -> tuple[PeerStatus, ...]:
        """Return how far sync with each peer is."""
        return tuple(peer.status for peer in self._peers)

    def _watch(self) -> None:
        """Sign new rows, and start rounds when this node has something new."""
        seen: tuple[int, int] | None = None
        while not self._stop.is_set():
            count = self._graphs.notifier.count
            try:
                place = self._graphs.position(), self._graphs.newest_arrival()
                if place != seen:
                    self._sign()
                    seen = self._graphs.position(), self._graphs.newest_arrival()
                    for peer in self._peers:
                        peer.wake()
            except FourfoldError as error:
                _log.warning("sync: cannot sign: %s", error.message)
                self._stop.wait(SYNC_PAUSE_S)
            self._graphs.notifier.wait(count, _NOTICE_S)

    def _sign(self) -> None:
        if self._signer is not None:
            for domain in self._graphs.domains():
                self._graphs.sign_shared(domain, self._signer)


class _PeerLoop:
    """Sync threads of one peer: one runs rounds, the other listens for hints."""

    def __init__(
        self,
        graphs: Graphs,
        target: SyncTarget,
        signer: Signer | None,
        *,
        stop: threading.Event,
        every_s: float,
        on_status: Callable[[PeerStatus], None] | None,
    ) -> None:
        self._graphs = graphs
        self._target = target
        self._signer = signer
        self._stop = stop
        self._every_s = every_s
        self._on_status = on_status
        self._wake = threading.Event()
        self._closing = ExitStack()
        self.status = PeerStatus(target.peer_id, target.url, 0, (), None)
        self._threads = [
            threading.Thread(target=work, name=f"fourfold-sync-{name}", daemon=True)
            for name, work in (("rounds", self._run_rounds), ("hints", self._follow_hints))
        ]

    def start(self) -> None:
        store = self._closing.enter_context(
            connect(self._target.url, self._target.key, retry_for=SYNC_RETRY_S)
        )
        self._remote: RemoteSync = store.graphs.sync
        self._hints = self._remote.events()
        self._closing.callback(self._hints.close)
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Start a round now, or once the pause after a failure is over."""
        self._wake.set()

    def stop(self) -> None:
        self._wake.set()
        self._closing.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _run_rounds(self) -> None:
        peer = PeerSync(self._graphs, self._remote, self._target.peer_id, self._signer)
        failures, audited = 0, time.monotonic()
        while not self._stop.is_set():
            self._wake.clear()
            audit = time.monotonic() - audited >= SYNC_AUDIT_S
            try:
                reports = tuple(peer.run(domain, audit=audit) for domain in peer.domains())
            except Exception as error:  # noqa: BLE001 - reported; the thread continues
                # If this thread died silently, the peer would never be reached again.
                failures += 1
                self._report(self.status._replace(error=_to_error(error)))
                self._stop.wait(pause_after(failures, SYNC_PAUSE_S, SYNC_PAUSE_MAX_S))
                continue
            failures = 0
            audited = time.monotonic() if audit else audited
            rounds = self.status.rounds + 1
            self._report(self.status._replace(rounds=rounds, reports=reports, error=None))
            self._wake.wait(self._every_s)

    def _report(self, status: PeerStatus) -> None:
        if self._stop.is_set():
            # Stopping closes the connections: that is not a failure of the peer.
            return
        self.status = status
        if self._on_status is not None:
            self._on_status(status)

    def _follow_hints(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                for heads in self._hints:
                    failures = 0
                    with suppress(FourfoldError):
                        if self._graphs.sync_heads(heads.domain) != heads:
                            self._wake.set()
            except FourfoldError as error:
                _log.info("sync: no hints from %s: %s", self._target.url, error.message)
            if self._stop.is_set():
                return
            failures += 1
            self._stop.wait(pause_after(failures, SYNC_PAUSE_S, SYNC_PAUSE_MAX_S))
            self._hints = self._remote.events()
            self._closing.callback(self._hints.close)


def _to_error(error: Exception) -> FourfoldError:
    """Return an error of a round as one that can be reported."""
    if isinstance(error, FourfoldError):
        return error
    _log.error("sync: a round failed", exc_info=error)
    return FourfoldError(f"sync: a round failed: {error!r:.200}")
