"""`fourfold mcp`: a store as tools for agents, by the Model Context Protocol."""

from __future__ import annotations

import ipaddress

import click

from fourfold.cli.options import command as _command
from fourfold.cli.options import open_or_connect, root_argument
from fourfold.cli.output import Output
from fourfold.errors import Refused


@_command("mcp")
@root_argument(required=True, url=True)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdin and stdout.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for --http.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=4438,
    show_default=True,
    help="Port for --http; the path is /mcp.",
)
@click.option(
    "--key",
    envvar="FOURFOLD_KEY",
    help="Key of the server; prefer FOURFOLD_KEY, which other users cannot see.",
)
def command(out: Output, root: str, *, http: bool, host: str, port: int, key: str | None) -> None:
    """Serve ROOT to an agent by the Model Context Protocol, until interrupted.

    ROOT is a folder, or the URL of a server (`fourfold serve`). The tools list, read at any point
    of the past, show history and differences, search, print transcripts and run SQL. None of them
    changes anything, and the folder may be in use by other processes.

    Without --http, an MCP client starts this command and talks to it over stdin and stdout.
    With --http there is no authentication, so the server listens on localhost only.
    """
    from fourfold.adapters.mcp import make_server  # noqa: PLC0415 - an extra

    if http and not _is_local(host):
        raise Refused(
            f"--host {host}: other machines could read the whole store",
            hint="Listen on 127.0.0.1, and let a proxy that checks its clients forward to it.",
        )
    with open_or_connect(root, key) as store:
        server = make_server(store)
        if not http:
            server.run("stdio")
            return
        url = f"http://{host}:{port}/mcp"
        if out.as_json:
            out.document({"root": root, "url": url})
        else:
            out.line(f"{root} is served by MCP at {url}; Ctrl-C ends it")
        out.flush()
        server.run("streamable-http", host=host, port=port)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
