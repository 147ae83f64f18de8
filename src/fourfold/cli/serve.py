"""`fourfold serve`: a store over HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from fourfold import limits
from fourfold.cli.options import command as _command
from fourfold.cli.options import published_store, refuse_without_conditions, root_argument
from fourfold.cli.output import Output
from fourfold.errors import InvalidConfig, Refused
from fourfold.server import unix_socket
from fourfold.server.auth import Access
from fourfold.server.log_output import logging_to
from fourfold.server.origins import Origins
from fourfold.server.publisher import ServerPublisher
from fourfold.server.session_upkeep import SessionUpkeep
from fourfold.server.tls import Certificate
from fourfold.settings import ServerSettings, load
from fourfold.store import Store, open_store

if TYPE_CHECKING:
    from fourfold.server.routes import Pages
    from fourfold.server.streams import StreamProtocol


@dataclass
class _Endpoint:
    """Address and TLS of a server, from the options."""

    host: str
    port: int
    listen_fd: int | None
    unix: Path | None
    tls_cert: Path | None
    tls_key: Path | None

    def check(self) -> Self:
        """Take over an inherited socket; `host` and `port` are then those that it listens on.

        Raises:
            UsageError: options exclude each other, or one lacks the other.
        """
        from fourfold.server import run  # noqa: PLC0415 - an extra

        if self.unix is not None and self.listen_fd is not None:
            raise click.UsageError("--unix and --listen-fd exclude each other.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key belong together.")
        self._inherited = None if self.listen_fd is None else run.inherit_socket(self.listen_fd)
        if self._inherited is not None:
            self.host, self.port = self._inherited.getsockname()[:2]
        elif self.unix is not None:
            # Only processes of this machine reach it.
            self.host = "localhost"
        return self

    def load_certificate(self, root: Path, settings: ServerSettings) -> Certificate | None:
        """Load the certificate of the options, else that of the settings; None without TLS."""
        if self.tls_cert is not None and self.tls_key is not None:
            return Certificate(self.tls_cert, self.tls_key)
        if settings.tls_cert == settings.tls_key == "none":
            return None
        if "none" in {settings.tls_cert, settings.tls_key}:
            raise InvalidConfig("server.tls_cert and server.tls_key must both be set, or neither")
        return Certificate(root / settings.tls_cert, root / settings.tls_key)

    def listening(self) -> AbstractContextManager[socket.socket | None]:
        """Return the socket to serve; None if the server is to listen on `host` and `port`."""
        from fourfold.server import run  # noqa: PLC0415 - an extra

        if self.unix is not None:
            return unix_socket.listen(self.unix, run.HTTP_BACKLOG)
        return nullcontext(self._inherited)

    def url(self, *, is_tls: bool) -> str:
        """Format the address of the server."""
        if self.unix is not None:
            return f"unix:{self.unix}"
        return f"{'https' if is_tls else 'http'}://{self.host}:{self.port}/"


@_command("serve")
@root_argument(required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=4437, show_default=True, help="Where."
)
@click.option(
    "--listen-fd",
    type=click.IntRange(0),
    metavar="FD",
    help="Serve a socket that listens already, inherited as this file descriptor; replaces --host"
    " and --port.",
)
@click.option(
    "--unix",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Listen on a Unix socket, for its owner and group; replaces --host and --port.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve HTTPS with this certificate and its chain (PEM); SIGHUP loads it again.",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of the certificate (PEM), without a password.",
)
@click.option(
    "--long-poll",
    type=click.FloatRange(min=0.1, max=3600),
    default=limits.LONG_POLL_S,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that a long-poll waits for new records.",
)
@click.option(
    "--fast-front/--no-fast-front",
    default=True,
    help="Accept appends with the fast HTTP front end, which bypasses ASGI; on by default.",
)
@click.option(
    "--objects",
    metavar="URL",
    help="Publish the whole store there: a folder, or s3://bucket/prefix.",
)
@click.option(
    "--publish-first",
    is_flag=True,
    help="Acknowledge an append after it is published; requires --objects.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Require no key, even if keys exist; only on this machine.",
)
@click.option(
    "--cors",
    metavar="ORIGIN",
    multiple=True,
    help="Allow web pages of this origin, such as https://app.example, or * for all; repeatable.",
)
@click.option(
    "--otlp",
    metavar="URL",
    help="Send traces of requests and metrics to this OTLP receiver (HTTP).",
)
@click.option(
    "--sync-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sign new shared rows of graphs with this key, and keep in step with peers at URLs.",
)
@click.option(
    "--sync-access",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with a line `URL KEY` for each peer; requires --sync-key.",
)
def command(
    out: Output,
    root: Path,
    *,
    sync_key: Path | None,
    sync_access: Path | None,
    long_poll: float,
    fast_front: bool,
    objects: str | None,
    publish_first: bool,
    is_open: bool,
    cors: tuple[str, ...],
    otlp: str | None,
    **address: Any,
) -> None:
    """Serve ROOT over HTTP, until interrupted: all four models, and jobs.

    Streams are under /v1/stream/NAME (Durable Streams protocol), documents under /v1/spaces, graphs
    under /v1/apps, sessions under /v1/sessions; /openapi.json describes all. Until you create a key
    (`fourfold key`), the server listens on this machine only; after that, every request that reads
    or changes data needs a key, unless you pass --open. A browser shows the store at the root of
    the address.

    With --tls-cert and --tls-key the server speaks HTTPS. A renewed certificate is loaded within
    seconds, or at once on SIGHUP.

    Web pages of other origins can neither change nor read anything, unless you allow their origin
    with --cors.

    With --sync-key, graphs are kept in step with the peers that have URLs (`fourfold app sync`).

    With --objects, appended records are sealed into segments and published in the background, and
    so are new data of every space, the sessions and the graphs of ROOT. /health lists databases
    that another process writes. While the object store is down, the server still starts and serves.
    """
    from fourfold.server import models, run, workers  # noqa: PLC0415 - an extra

    origins = Origins(cors)
    endpoint = _Endpoint(**address).check()
    _require("--publish-first", publish_first, "--objects", objects)
    _require("--sync-access", sync_access, "--sync-key", sync_key)
    _check_address(root, endpoint.host, is_open=is_open)
    with _opened(root, objects, publish_first=publish_first) as store, ExitStack() as stack:
        publishing = None if objects is None else _start_publishing(out, store, stack)
        settings = store.settings.server
        certificate = endpoint.load_certificate(root, settings)
        listener = stack.enter_context(endpoint.listening())
        _announce(out, root, endpoint.url(is_tls=certificate is not None))
        required = "never" if is_open else settings.require_key
        access = stack.enter_context(Access(root, require_key=required))
        pool = workers.Workers()
        _start_work(store, stack, sync_key, sync_access)
        run.serve(
            *(store.streams, access),
            host=endpoint.host,
            port=endpoint.port,
            long_poll_s=long_poll,
            fast_front=fast_front,
            keys_file=root / settings.keys_file,
            publishing=publishing,
            settings=settings,
            origins=origins,
            models=models.model_routes(store, pool),
            workers=pool,
            database_metrics=store.metrics_by_model,
            listener=listener,
            certificate=certificate,
            otlp_url=otlp,
            pages=partial(_load_explorer, root.resolve().name),
        )


def _load_explorer(name: str, protocol: StreamProtocol) -> Pages:
    """Import and return the web pages, on the first visit: many servers have none."""
    from fourfold.explorer.explorer import Explorer  # noqa: PLC0415

    return Explorer(protocol, name)


def _require(option: str, value: object, other: str, other_value: object) -> None:
    """Raise UsageError if an option was passed without another one that it requires."""
    if value and other_value is None:
        raise click.UsageError(f"{option} requires {other}.")


@contextmanager
def _opened(root: Path, objects: str | None, *, publish_first: bool) -> Iterator[Store]:
    """Open a store; what happens meanwhile, such as migrations, is in the log."""
    with logging_to(load(root, environ=os.environ).log):
        if objects is None:
            opened: AbstractContextManager[Store] = open_store(root)
        else:
            opened = published_store(
                root, objects, publish_first=publish_first, make=True, check=False
            )
        with opened as store:
            yield store


def _check_address(root: Path, host: str, *, is_open: bool) -> None:
    """Raise Refused if a server without keys would be reachable from other machines."""
    from fourfold.server import run  # noqa: PLC0415 - an extra

    if is_open and not run.is_loopback(host):
        raise Refused(
            f"--open: a server without keys does not listen on {host}",
            hint="Remove --open, or listen on 127.0.0.1.",
        )
    with Access(root) as access:
        run.check_listen_address(host, access)


def _announce(out: Output, root: Path, address: str) -> None:
    if out.as_json:
        streams = f"{address}v1/stream/" if address.endswith("/") else address
        out.document({"root": str(root), "address": streams, "explorer": address})
    else:
        out.line(f"serving {root} at {address} (stop with Ctrl-C)")
    out.flush()


def _publishing(store: Store) -> ServerPublisher:
    from fourfold.store.background_publisher import Continuous  # noqa: PLC0415 - imports every model

    return ServerPublisher(
        Continuous(store), store.archive, lambda: refuse_without_conditions(store.objects)
    )


def _report_unpublished(out: Output, publishing: ServerPublisher) -> None:
    """Report on stderr what could not be published before the server stopped."""
    if publishing.failure is not None:
        message = f"nothing was published: {publishing.failure.message}"
        out.error({**publishing.failure.as_dict(), "message": message})
    for name, error in publishing.backup.left.items():
        message = f"{name or 'the store'} is not published: {error.message}"
        out.error({**error.as_dict(), "message": message})


def _start_sync(store: Store, stack: ExitStack, key: Path | None, access: Path | None) -> None:
    """Sign new rows of graphs and keep them in step with peers until the stack ends."""
    if key is not None:
        from fourfold.cli.app_sync_http import running  # noqa: PLC0415 - most servers do not sync

        stack.enter_context(running(store.graphs, (), access, key))


def _start_work(store: Store, stack: ExitStack, key: Path | None, access: Path | None) -> None:
    """Sync graphs, index events, and send traces of turns, until the stack ends."""
    _start_sync(store, stack, key, access)
    stack.enter_context(SessionUpkeep(store))
    settings = store.settings.sessions
    if settings.otlp_url == "none":
        return
    from fourfold.adapters import otlp_exporter  # noqa: PLC0415 - an extra
    from fourfold.otlp.sender import parse_headers  # noqa: PLC0415 - an extra

    sessions, headers = store.sessions, settings.otlp_headers
    exporter = otlp_exporter.TraceExporter(
        *(sessions, settings.otlp_url, store.root / "sessions" / "traces.json"),
        content=settings.otlp_content == "on",
        headers=None if headers == "none" else parse_headers(headers, "sessions.otlp_headers"),
    )
    stack.enter_context(exporter)


def _start_publishing(out: Output, store: Store, stack: ExitStack) -> ServerPublisher:
    """Publish a store until the stack ends, which reports what is then unpublished."""
    publishing = _publishing(store)
    stack.callback(_report_unpublished, out, publishing)
    stack.enter_context(publishing.running())
    if publishing.failure is not None:
        out.error(publishing.failure.as_dict())
    return publishing
