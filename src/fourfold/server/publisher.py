"""Publishing next to a running server, which also starts while the object store is down.

Appends are durable on the local disk, so an outage of the object store is no reason to refuse them.
Until the object store responds, and has proved that it honours conditional writes, nothing is
published, and `/health` reports why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from fourfold.errors import FourfoldError, ObjectStoreDenied, ObjectStoreError

if TYPE_CHECKING:
    from fourfold.models.streams.archive import Archive
    from fourfold.store.background_publisher import Continuous

OBJECTS_RETRY_S: Final = 5.0
"""Pause between attempts to reach an object store that was down when the server started."""


class ServerPublisher:
    """Publish a store while its server runs."""

    def __init__(
        self,
        backup: Continuous,
        archive: Archive,
        check: Callable[[], None],
        *,
        retry_s: float = OBJECTS_RETRY_S,
    ) -> None:
        self.backup = backup
        self.failure: FourfoldError | None = None
        """Error that prevents publishing; None once it runs."""
        self._archive = archive
        self._check = check
        self._retry_s = retry_s
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[ServerPublisher]:
        """Publish until the end of the block, which publishes everything that is left.

        Raises:
            Refused: the object store does not honour conditional writes.
            ObjectStoreDenied: the object store rejects the credentials.
        """
        with ExitStack() as stack:
            try:
                self._start(stack)
            except ObjectStoreDenied:
                raise
            except ObjectStoreError as error:
                self.failure = error
                thread = threading.Thread(target=self._retry, args=(stack,), daemon=True)
                thread.start()
            try:
                yield self
            finally:
                with self._lock:
                    self._stop.set()

    def _start(self, stack: ExitStack) -> None:
        self._check()
        with self._lock:
            if not self._stop.is_set():
                # Closed last, after the server has stopped: this publishes everything that is left.
                stack.enter_context(self.backup.running())
                stack.enter_context(self._archive.running())
                self.failure = None

    def _retry(self, stack: ExitStack) -> None:
        while not self._stop.wait(self._retry_s):
            try:
                self._start(stack)
            except FourfoldError as error:
                self.failure = error
            else:
                return
