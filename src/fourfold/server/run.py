"""Run the server: one process and one store, until it receives a signal.

Without keys it listens on this machine only; another address is refused. Once a key has existed,
the server refuses every request without one, even after the last key was removed.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, MissingDependency, Refused
from fourfold.kernel import MetricsReading
from fourfold.models.streams import Streams
from fourfold.server.app import StreamsApp
from fourfold.server.auth import Access
from fourfold.server.budget import BodyBudget
from fourfold.server.connections import proxies
from fourfold.server.hosts import Hosts
from fourfold.server.observer import Observer
from fourfold.server.origins import Origins
from fourfold.server.routes import Pages, RouteGroup
from fourfold.server.signing_keys import Keys
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.server.streams import StreamProtocol
from fourfold.server.subscriptions import Control
from fourfold.server.tls import Certificate
from fourfold.server.uvicorn_check import unsupported_reason
from fourfold.server.workers import Workers
from fourfold.settings import ServerSettings

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher

SWEEP_EVERY_S: Final = 1.0
"""Interval at which expired streams are looked for."""
HTTP_BACKLOG: Final = 4_096
"""Connections that the kernel queues before they are accepted."""
HTTP_SHUTDOWN_S: Final = 10
"""Time for pending requests when the server stops."""
GC_FULL_S: Final = 300.0
"""Interval of full garbage collections."""
GC_NEVER: Final = 1_000_000_000
"""Threshold at which Python would start a full collection itself."""
THREAD_SWITCH_S: Final = 0.000_5
"""Time that a Python thread may run while another one waits for the interpreter."""

_log = logging.getLogger("fourfold.server")


class Sweeper:
    """Delete expired streams and records past their retention, periodically."""

    def __init__(self, streams: Streams, every_s: float = SWEEP_EVERY_S) -> None:
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
                # `/health` reports it until a sweep succeeds again.
                self._streams.sweep_failure = error
            except Exception as error:  # noqa: BLE001  (reported; the thread continues)
                # If this thread died silently, streams would never expire.
                _log.exception("A sweep failed")
                self._streams.sweep_failure = FourfoldError(f"sweep failed: {error!r:.200}")
            else:
                self._streams.sweep_failure = None


def check_listen_address(host: str, access: Access) -> None:
    """Raise Refused if a server without keys would be reachable from other machines."""
    if not is_loopback(host) and not access.stored_keys():
        raise Refused(
            f"host: must be a loopback address while there is no key, got {host}",
            hint="Create a key with `fourfold key add ROOT`, or listen on 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    """Return True if a server that listens on `host` is reachable from this machine only."""
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
    long_poll_s: float = limits.LONG_POLL_S,
    fast_front: bool = True,
    keys_file: Path | None = None,
    publishing: ServerPublisher | None = None,
    settings: ServerSettings | None = None,
    origins: Origins | None = None,
    models: Iterable[RouteGroup] = (),
    workers: Workers | None = None,
    database_metrics: Callable[[], Iterable[MetricsReading]] | None = None,
    pages: Callable[[StreamProtocol], Pages] | None = None,
    listener: socket.socket | None = None,
    certificate: Certificate | None = None,
    otlp_url: str | None = None,
) -> None:
    """Serve the streams of a store until the process is asked to stop.

    Requests in flight are completed first.

    Args:
        keys_file: File of the keys that sign webhooks; by default in the folder of the store.
        models: Routes of the other models, from `models.model_routes`.
        database_metrics: Returns metrics by model; by default those of the streams.
        pages: Loads the web pages that are served besides the API, for the first visit.
        listener: A socket that listens already, of any kind; `host` tells who can reach it.
        certificate: Serve over TLS with this certificate.
        otlp_url: Receiver of traces and metrics, instead of that of the settings.
    """
    check_listen_address(host, access)
    if not is_loopback(host):
        access.always_require()
    uvicorn, settings = _uvicorn(), settings or ServerSettings()
    keys = None if keys_file is None else Keys(keys_file)
    control = None if keys is None else Control(streams, keys, access, settings=settings)
    transport = choose_transport(fast=fast_front)
    protocol = StreamProtocol(
        *(streams, ReadTimeouts(long_poll_s=long_poll_s), access, control),
        hosts=Hosts(settings.hosts),
        origins=origins,
        budget=BodyBudget(settings.body_bytes_in_flight),
        publishing=publishing,
        transport=transport.name,
        models=models,
        workers=workers,
        database_metrics=database_metrics,
        observer=Observer.from_settings(settings, streams.database.path.parent.parent, otlp_url),
    )
    if pages is not None:
        protocol.pages_loader = partial(pages, protocol)
    raise_file_limit()
    options = uvicorn.Config(
        *(StreamsApp(protocol), host, port),
        http=transport.protocol_class(protocol, settings),
        **_uvicorn_options(settings),
    )
    server = _server_class(uvicorn, protocol, certificate, settings.handshake_s)(options)
    with (
        Sweeper(streams),
        protocol.control.deliverer(),
        access.recording_uses(),
        protocol.observer.running(protocol.diagnostics.metrics_text),
        certificate or nullcontext(),
    ):
        _run(server, listener)


def inherit_socket(number: int) -> socket.socket:
    """Return the listening socket of a file descriptor that this process has inherited.

    Raises:
        InvalidInput: It is not one.
    """
    refusal = InvalidInput(f"file descriptor {number} must be a TCP socket that listens")
    try:
        listener = socket.socket(fileno=number)
    except OSError:
        raise refusal from None
    is_tcp = listener.family in {socket.AF_INET, socket.AF_INET6}
    if not is_tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise refusal
    return listener


def _run(server: Any, listener: socket.socket | None = None) -> None:
    """Run a server of uvicorn until it is asked to stop; raise Refused if it cannot listen."""
    with _deferred_sigterm(), rare_full_gc(), short_switch_interval():
        server.run(None if listener is None else [listener])
    if not server.started:
        raise Refused(
            f"cannot listen on {server.config.host}, port {server.config.port}",
            hint="Choose another port, or stop the process that listens there.",
        )


def _uvicorn_options(settings: ServerSettings) -> dict[str, Any]:
    """Return the options of uvicorn that do not depend on the application."""
    trusted = proxies(settings.trusted_proxies)
    return {
        # A handshake would pass the connection to code that does not enforce its limits.
        "ws": "none",
        # By default uvicorn trusts the forwarding headers of every client on this machine.
        "proxy_headers": bool(trusted),
        "forwarded_allow_ips": trusted,
        "log_level": "warning",
        "access_log": False,
        # Proxies keep connections for about a minute: they must close them before the server does.
        "timeout_keep_alive": limits.HTTP_KEEP_ALIVE_S,
        "timeout_graceful_shutdown": HTTP_SHUTDOWN_S,
        "backlog": HTTP_BACKLOG,
    }


def raise_file_limit() -> None:
    """Raise the limit of open files of this process to its maximum: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # The actual limit may be lower than the stated one; then nothing changes.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def rare_full_gc(every_s: float = GC_FULL_S) -> Iterator[None]:
    """Run full garbage collections only once in a while, until the block ends.

    A full collection visits every object: 40 ms for those of an idle server, 200 ms with 5,000
    readers, and no request is handled meanwhile. What exists now is excluded from it, and Python
    itself collects young objects only, in which nearly all cycles are found.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], GC_NEVER)
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            gc.collect()

    thread = threading.Thread(target=run, name="fourfold-gc", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let the event loop wait less for other Python threads, until the block ends.

    A thread that computes holds the interpreter until another one has waited for it that long. The
    loop releases it at every system call, so by default each of them may take 5 ms.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _deferred_sigterm() -> Iterator[None]:
    """Ignore SIGTERM after uvicorn has stopped, so that the store is published and closed.

    uvicorn stops on SIGTERM and then lets the signal end the process. A second signal ends it at
    once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _server_class(
    uvicorn: Any,
    protocol: StreamProtocol,
    certificate: Certificate | None = None,
    handshake_s: float = limits.HTTP_HANDSHAKE_S,
) -> Any:
    """Return uvicorn's server class with TLS, whose shutdown ends waiting reads first."""
    tls: dict[str, Any] = {}
    if certificate is not None:
        tls = {
            "ssl": certificate.context,
            "ssl_handshake_timeout": handshake_s,
            "ssl_shutdown_timeout": handshake_s,
        }

    class FourfoldServer(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: Any = None) -> None:
            # uvicorn itself would listen without a timeout for handshakes.
            await super().startup(sockets=[])
            try:
                self.servers = [await self._listen(sockets)]
            except OSError:
                self.started, self.should_exit = False, True
                await self.lifespan.shutdown()

        async def _listen(self, sockets: Any) -> Any:
            config, loop = self.config, asyncio.get_running_loop()
            make_connection = partial(
                config.http_protocol_class,
                config=config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            options = {"backlog": config.backlog, **tls}
            if not sockets:
                address = {"host": config.host, "port": config.port}
                return await loop.create_server(make_connection, **address, **options)
            if sockets[0].family == socket.AF_UNIX:
                return await loop.create_unix_server(make_connection, sock=sockets[0], **options)
            return await loop.create_server(make_connection, sock=sockets[0], **options)

        async def shutdown(self, sockets: Any = None) -> None:
            protocol.stop()
            await super().shutdown(sockets)

    return FourfoldServer


class ServerTransport(NamedTuple):
    """The HTTP implementation of a server: with the fast append path, without it, or uvicorn's."""

    name: str
    """Name as reported by `/health`, with the reason if there is no fast append path."""
    kind: Literal["fast", "asgi", "h11"]

    def protocol_class(
        self, protocol: StreamProtocol, settings: ServerSettings | None = None
    ) -> Any:
        """Return the HTTP protocol class for uvicorn."""
        if self.kind == "h11":
            return "h11"
        from fourfold.server.fast_append import make_protocol_class  # noqa: PLC0415 - an extra

        return make_protocol_class(protocol, settings, fast=self.kind == "fast")


def choose_transport(*, fast: bool) -> ServerTransport:
    """Return the transport of a server; `fast` requests the fast append path.

    uvicorn's own protocol (h11) is used if its httptools protocol is not supported; it limits the
    size of request heads itself.
    """
    reason = unsupported_reason()
    if reason is not None:
        return ServerTransport(f"asgi: {reason}", "h11")
    return (
        ServerTransport("fast", "fast")
        if fast
        else ServerTransport("asgi: it was switched off", "asgi")
    )


def _uvicorn() -> Any:
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "the server requires uvicorn, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return uvicorn
