"""A failing network: passes bytes between a client and a server, and closes connections."""

from __future__ import annotations

import contextlib
import random
import socket
import threading


class CuttingProxy:
    """A proxy that closes a connection after a random number of bytes, up to `most`.

    With `most` None it closes none.
    """

    def __init__(self, port, most, seed=0):
        self._target = port
        self.most = most
        self._random = random.Random(seed)
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        self._threads = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for item in self._open:
            _end(item)
        for thread in self._threads:
            thread.join()
        for item in self._open:
            item.close()

    def cut(self):
        """Close all connections."""
        for item in list(self._open):
            _end(item)

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            left = None if self.most is None else self._random.randint(1, self.most)
            for pair in ((near, far, None), (far, near, left)):
                thread = threading.Thread(target=self._pass, args=pair, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source, target, left):
        try:
            while data := source.recv(65536):
                if left is not None:
                    data, left = data[:left], left - len(data)
                target.sendall(data)
                if left is not None and left <= 0:
                    self.cuts += 1
                    break
        except OSError:
            pass
        _end(source)
        _end(target)


def _end(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
