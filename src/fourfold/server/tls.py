"""TLS of the server: its certificate, which is loaded again when it was renewed.

The files are looked at every few seconds, and at once on SIGHUP. New connections use the new
certificate; open ones keep theirs. Files that do not fit together, such as in the middle of a
renewal, are reported and tried again later, and the certificate in use stays.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
import threading
from pathlib import Path
from typing import Final, Self

from fourfold.errors import InvalidConfig

TLS_CHECK_S: Final = 10.0
"""Interval at which the files of the certificate are looked at."""

_log = logging.getLogger("fourfold.server")


class Certificate:
    """The certificate of a server and its key; it is watched inside a `with` block.

    Raises:
        InvalidConfig: the files cannot be read, or do not fit together.
    """

    def __init__(self, certificate: Path, key: Path, *, check_s: float = TLS_CHECK_S) -> None:
        self._files = (certificate, key)
        self._check_s = check_s
        self._stamp = self._read_stamp()
        self._failed_stamp: tuple[int, ...] = ()
        self._current = self._load()
        self.context = self._load()
        """Context to listen with; each handshake uses the newest certificate."""
        self.context.sni_callback = self._use_current
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fourfold-tls", daemon=True)

    def __enter__(self) -> Self:
        self._signals = threading.current_thread() is threading.main_thread()
        if self._signals:
            self._handler = signal.signal(signal.SIGHUP, lambda *_: self._wake.set())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._signals:
            signal.signal(signal.SIGHUP, self._handler)
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def reload(self) -> bool:
        """Load the files; return False, and keep the certificate in use, if they are invalid."""
        stamp = self._read_stamp()
        try:
            self._current = self._load()
        except InvalidConfig as error:
            if stamp != self._failed_stamp:
                _log.error("The certificate was not loaded: %s", error)
            self._failed_stamp = stamp
            return False
        self._stamp, self._failed_stamp = stamp, ()
        _log.info("The certificate was loaded")
        return True

    def _watch(self) -> None:
        while True:
            is_signal = self._wake.wait(self._check_s)
            self._wake.clear()
            if self._stopping:
                return
            if is_signal or self._read_stamp() != self._stamp:
                self.reload()

    def _use_current(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Use the newest certificate; called in each handshake, with or without a name."""
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        certificate, key = self._files
        try:
            # A key with a password would be asked for on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidConfig(
                f"TLS: cannot load certificate {certificate} with key {key}: {reason}",
                hint="Use PEM files: the certificate with its chain, and its key without password.",
            ) from None
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        """Return what identifies the contents of both files; a missing file has no entries."""
        stamp: tuple[int, ...] = ()
        for path in self._files:
            try:
                status = os.stat(path)  # noqa: PTH116 - follows links, as renewal tools make them
            except OSError:
                continue
            stamp += (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamp
