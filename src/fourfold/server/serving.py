"""Running the server: one process, one store, until it is told to stop.

Without keys it listens on this machine only; another address is refused.
"""

from __future__ import annotations

import ipaddress
import threading
from typing import Any, Self

from fourfold import limits
from fourfold.errors import FourfoldError, MissingDependency, Refused
from fourfold.models.streams import Streams
from fourfold.server.access import Access
from fourfold.server.asgi import StreamsApp
from fourfold.server.protocol import Protocol, Timing


class Sweeper:
    """Removes streams whose time is over, and gives up what is not retained, now and then."""

    def __init__(self, streams: Streams, every_s: float = limits.SWEEP_EVERY_S) -> None:
        self._streams = streams
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fourfold-sweeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._streams.sweep()
            except FourfoldError as error:
                # Told by `/health` until a sweep succeeds again.
                self._streams.sweep_failure = error
            else:
                self._streams.sweep_failure = None


def refuse_other_machines(host: str, access: Access) -> None:
    """A server without keys serves this machine alone."""
    if access.keys():
        return
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise Refused(
            f"without a key the server does not listen on {host}",
            hint="Make a key with `fourfold key add ROOT`, or listen on 127.0.0.1.",
        )


def serve(
    streams: Streams, access: Access, *, host: str, port: int, timing: Timing | None = None
) -> None:
    """Serve the streams of a store until the process is asked to stop; requests that are under way
    are answered first.
    """
    refuse_other_machines(host, access)
    uvicorn = _uvicorn()
    with Sweeper(streams):
        uvicorn.run(
            StreamsApp(Protocol(streams, timing, access)),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            # Proxies keep connections for about a minute: they must end them, not we under them.
            timeout_keep_alive=limits.HTTP_KEEP_ALIVE_S,
            timeout_graceful_shutdown=limits.HTTP_SHUTDOWN_S,
        )


def _uvicorn() -> Any:
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "the server runs on uvicorn, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return uvicorn
