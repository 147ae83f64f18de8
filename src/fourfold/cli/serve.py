"""`fourfold serve`: a store over HTTP."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import click

from fourfold import limits
from fourfold.cli.options import command as _command
from fourfold.cli.options import published_store, refuse_without_conditions, root_argument
from fourfold.cli.output import Output
from fourfold.errors import Refused
from fourfold.server.auth import Access
from fourfold.server.origins import Origins
from fourfold.server.publisher import ServerPublisher
from fourfold.store import Store, open_store


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
def command(
    out: Output,
    root: Path,
    *,
    host: str,
    port: int,
    listen_fd: int | None = None,
    long_poll: float,
    fast_front: bool,
    objects: str | None,
    publish_first: bool,
    is_open: bool,
    cors: tuple[str, ...],
) -> None:
    """Serve ROOT over HTTP, until interrupted: all four models, and jobs.

    Streams are under /v1/stream/NAME (Durable Streams protocol), documents under /v1/spaces, graphs
    under /v1/apps, sessions under /v1/sessions; /openapi.json describes all. Until you create a key
    (`fourfold key`), the server listens on this machine only; after that, every request that reads
    or changes data needs a key, unless you pass --open. A browser shows the store at the root of
    the address.

    Web pages of other origins can neither change nor read anything, unless you allow their origin
    with --cors.

    With --objects, appended records are sealed into segments and published in the background, and
    so are new data of every space, the sessions and the graphs of ROOT. /health lists databases
    that another process writes. While the object store is down, the server still starts and serves.
    """
    from fourfold.explorer.explorer import Explorer  # noqa: PLC0415 - an extra
    from fourfold.server import models, run, workers  # noqa: PLC0415 - an extra

    origins = Origins(cors)
    listener = None if listen_fd is None else run.inherit_socket(listen_fd)
    if listener is not None:
        host, port = listener.getsockname()[:2]
    if publish_first and objects is None:
        raise click.UsageError("--publish-first requires --objects.")
    _check_address(root, host, is_open=is_open)
    publishing: ServerPublisher | None = None
    with _opened(root, objects, publish_first=publish_first) as store, ExitStack() as stack:
        if objects is not None:
            publishing = _publishing(store)
            stack.callback(_report_unpublished, out, publishing)
            stack.enter_context(publishing.running())
            if publishing.failure is not None:
                out.error(publishing.failure.as_dict())
        _announce(out, root, f"http://{host}:{port}/")
        settings = store.settings.server
        required = "never" if is_open else settings.require_key
        access = stack.enter_context(Access(root, require_key=required))
        pool = workers.Workers()
        run.serve(
            *(store.streams, access),
            host=host,
            port=port,
            long_poll_s=long_poll,
            fast_front=fast_front,
            keys_file=root / settings.keys_file,
            publishing=publishing,
            settings=settings,
            origins=origins,
            models=models.model_routes(store, pool),
            workers=pool,
            listener=listener,
            pages=lambda protocol: Explorer(protocol, root.resolve().name),
        )


def _opened(
    root: Path, objects: str | None, *, publish_first: bool
) -> AbstractContextManager[Store]:
    if objects is None:
        return open_store(root)
    return published_store(root, objects, publish_first=publish_first, make=True, check=False)


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
        out.document({"root": str(root), "address": f"{address}v1/stream/", "explorer": address})
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
