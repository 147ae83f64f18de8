"""`fourfold serve`: the streams of a store over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from fourfold import limits
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.server.access import Access
from fourfold.server.protocol import Timing
from fourfold.server.serving import refuse_other_machines, serve
from fourfold.store import open_store


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
def command(out: Output, root: Path, *, host: str, port: int, long_poll: float) -> None:
    """Serve the streams of ROOT over HTTP, until interrupted.

    It speaks the Durable Streams protocol: PUT creates a stream under /v1/stream/NAME, POST
    appends, GET reads, and follows by long-poll or as server-sent events. An append that was
    answered is on disk. Without a key (`fourfold key`) it listens on this machine only; with one,
    every request needs one.
    """
    access = Access(root)
    refuse_other_machines(host, access)
    with open_store(root) as store:
        streams = store.streams
        address = f"http://{host}:{port}/v1/stream/"
        if out.as_json:
            out.document({"root": str(root), "address": address})
        else:
            out.line(f"serving {root} at {address} (stop with Ctrl-C)")
        out.flush()
        serve(streams, access, host=host, port=port, timing=Timing(long_poll_s=long_poll))
