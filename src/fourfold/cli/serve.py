"""`fourfold serve`: the streams of a store over HTTP."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from fourfold import limits
from fourfold.cli.options import command as _command
from fourfold.cli.options import published_store, refuse_without_conditions, root_argument
from fourfold.cli.output import Output
from fourfold.errors import Refused
from fourfold.server.auth import Access
from fourfold.server.publisher import ServerPublisher
from fourfold.server.run import check_listen_address, is_loopback, serve
from fourfold.server.signing_keys import Keys
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.server.subscriptions import Control
from fourfold.store import Store, open_store


@_command("serve")
@root_argument(required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=4437, show_default=True, help="Where."
)
@click.option(
    "--long-poll",
    type=click.FloatRange(min=0.1, max=3600),
    default=limits.LONG_POLL_S,
    show_default=True,
    metavar="SECONDS",
    help="How long a long-poll waits for something new.",
)
@click.option(
    "--fast-front/--no-fast-front",
    default=True,
    help="Take appends off the wire before ASGI does; on if not said otherwise.",
)
@click.option(
    "--objects",
    metavar="URL",
    help="Publish the whole store there: a folder, or s3://bucket/prefix.",
)
@click.option(
    "--publish-first", is_flag=True, help="Answer an append once it is published; with --objects."
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Ask for no key, even where there are keys; on this machine only.",
)
def command(
    out: Output,
    root: Path,
    *,
    host: str,
    port: int,
    long_poll: float,
    fast_front: bool,
    objects: str | None,
    publish_first: bool,
    is_open: bool,
) -> None:
    """Serve the streams of ROOT over HTTP, until interrupted.

    It speaks the Durable Streams protocol: PUT creates a stream under /v1/stream/NAME, POST
    appends, GET reads, and follows by long-poll or as server-sent events. An append that was
    answered is on disk. While no key was ever made (`fourfold key`) it listens on this machine
    only; since then, whatever reads or changes what is stored needs one, unless --open is given.
    With --objects, what is appended is sealed into segments and published in the background, and so
    is what is new in every space, the sessions and the graphs of ROOT. A database that another
    process writes is not published from here; /health names it. While the object store is down the
    server starts and serves; it publishes once the object store answers, and /health says so.
    """
    if publish_first and objects is None:
        raise click.UsageError("--publish-first needs --objects.")
    if is_open and not is_loopback(host):
        raise Refused(
            f"--open: a server without keys does not listen on {host}",
            hint="Leave out --open, or listen on 127.0.0.1.",
        )
    check_listen_address(host, Access(root))
    opened = (
        open_store(root)
        if objects is None
        else published_store(root, objects, publish_first=publish_first, make=True, check=False)
    )
    publishing: ServerPublisher | None = None
    with opened as store, ExitStack() as stack:
        if objects is not None:
            publishing = _publishing(store)
            stack.callback(_say_what_is_left, out, publishing)
            stack.enter_context(publishing.running())
            if publishing.failure is not None:
                out.error(publishing.failure.as_dict())
        streams = store.streams
        address = f"http://{host}:{port}/v1/stream/"
        if out.as_json:
            out.document({"root": str(root), "address": address})
        else:
            out.line(f"serving {root} at {address} (stop with Ctrl-C)")
        out.flush()
        timing = ReadTimeouts(long_poll_s=long_poll)
        settings = store.settings.server
        access = Access(root, require_key="never" if is_open else settings.require_key)
        control = Control(streams, Keys(root / settings.keys_file), access, settings=settings)
        serve(
            *(streams, access),
            host=host,
            port=port,
            timing=timing,
            fast_front=fast_front,
            control=control,
            publishing=publishing,
            settings=settings,
        )


def _publishing(store: Store) -> ServerPublisher:
    from fourfold.store.background_publisher import Continuous  # noqa: PLC0415 - imports every model

    return ServerPublisher(
        Continuous(store), store.archive, lambda: refuse_without_conditions(store.objects)
    )


def _say_what_is_left(out: Output, publishing: ServerPublisher) -> None:
    """Once the server has stopped, and all has been published that could be."""
    if publishing.failure is not None:
        message = f"nothing was published: {publishing.failure.message}"
        out.error({**publishing.failure.as_dict(), "message": message})
    for name, error in publishing.backup.left.items():
        said = f"{name or 'the store'} is not published: {error.message}"
        out.error({**error.as_dict(), "message": said})
