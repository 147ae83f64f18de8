"""Running the server: one process, one store, until it is told to stop.

Without keys it listens on this machine only; another address is refused. Once there was a key, the
server refuses every request without one, also when the last key is gone.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from fourfold import limits
from fourfold.errors import FourfoldError, MissingDependency, Refused
from fourfold.models.streams import Streams
from fourfold.server.app import StreamsApp
from fourfold.server.auth import Access
from fourfold.server.budget import BodyBudget
from fourfold.server.connections import proxies
from fourfold.server.hosts import Hosts
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.server.streams import Protocol
from fourfold.server.subscriptions import Control
from fourfold.server.uvicorn_check import unsupported_reason
from fourfold.settings import Server

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher


_log = logging.getLogger("fourfold.server")


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
            except Exception as error:  # noqa: BLE001  (it is told, and the thread goes on)
                # Nobody would notice a thread that is gone: streams would just stop to end.
                _log.exception("A sweep failed")
                self._streams.sweep_failure = FourfoldError(f"a sweep failed: {error!r:.200}")
            else:
                self._streams.sweep_failure = None


def refuse_other_machines(host: str, access: Access) -> None:
    """A server without keys serves this machine alone."""
    if not is_this_machine(host) and not access.stored_keys():
        raise Refused(
            f"without a key the server does not listen on {host}",
            hint="Make a key with `fourfold key add ROOT`, or listen on 127.0.0.1.",
        )


def is_this_machine(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    streams: Streams,
    access: Access,
    *,
    host: str,
    port: int,
    timing: ReadTimeouts | None = None,
    fast_front: bool = True,
    control: Control | None = None,
    publishing: ServerPublisher | None = None,
    settings: Server | None = None,
) -> None:
    """Serve the streams of a store until the process is asked to stop; requests that are under way
    are answered first.
    """
    refuse_other_machines(host, access)
    if not is_this_machine(host):
        access.stay_closed()
    uvicorn = _uvicorn()
    protocol = Protocol(streams, timing, access, control)
    protocol.publishing = publishing
    settings = settings or Server()
    protocol.hosts = Hosts(settings.hosts)
    protocol.budget = BodyBudget(settings.body_bytes_in_flight)
    trusted = proxies(settings.trusted_proxies)
    allow_many_connections()
    options = uvicorn.Config(
        StreamsApp(protocol),
        http=_front(protocol, settings, fast=fast_front),
        host=host,
        port=port,
        # A handshake would leave the connection to code that knows nothing of its limits.
        ws="none",
        # By default uvicorn believes every client on this machine where it comes from.
        proxy_headers=bool(trusted),
        forwarded_allow_ips=trusted,
        log_level="warning",
        access_log=False,
        # Proxies keep connections for about a minute: they must end them, not we under them.
        timeout_keep_alive=limits.HTTP_KEEP_ALIVE_S,
        timeout_graceful_shutdown=limits.HTTP_SHUTDOWN_S,
        backlog=limits.HTTP_BACKLOG,
    )
    with Sweeper(streams), protocol.control.deliverer():
        server = _draining(uvicorn, protocol)(options)
        with _staying(), loaded_for_good():
            server.run()
    if not server.started:
        raise Refused(
            f"the server could not listen on {host}, port {port}",
            hint="Choose another port, or stop what listens there.",
        )


def allow_many_connections() -> None:
    """Let this process open as many files as it may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A system may have a limit below the one that it states; then all stays as it is.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def loaded_for_good() -> Iterator[None]:
    """What is loaded by now stays until the block ends, so it is not looked through for garbage:
    that took 40 ms each time, in which nobody was answered. Garbage of later is found as always.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _staying() -> Iterator[None]:
    """uvicorn stops when it is told to terminate, and then lets the signal end the process. But the
    store is to be published and closed first; a second signal ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _draining(uvicorn: Any, protocol: Protocol) -> Any:
    """uvicorn's server, which tells readers that wait to go before it waits for them."""

    class Draining(uvicorn.Server):  # type: ignore[misc]
        async def shutdown(self, sockets: Any = None) -> None:
            protocol.stop()
            await super().shutdown(sockets)

    return Draining


def _front(protocol: Protocol, settings: Server | None = None, *, fast: bool) -> Any:
    """What carries HTTP: the fast front, the plain one, or where those do not fit uvicorn as it is,
    in the way in which it bounds the head of a request by itself.
    """
    reason = unsupported_reason()
    if reason is not None:
        protocol.front = f"asgi: {reason}"
        return "h11"
    from fourfold.server.fast_append import front_of  # noqa: PLC0415 - an extra

    protocol.front = "fast" if fast else "asgi: it was switched off"
    return front_of(protocol, settings, fast=fast)


def _uvicorn() -> Any:
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "the server runs on uvicorn, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return uvicorn
