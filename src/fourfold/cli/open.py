"""`fourfold open`: look at a store in the browser."""

from __future__ import annotations

import socket
import threading
import time
import webbrowser
from pathlib import Path
from typing import Final

import click

from fourfold.cli import serve
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output

HOST: Final = "127.0.0.1"
START_S: Final = 30.0
POLL_S: Final = 0.05


@_command("open")
@root_argument(required=True)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Where to listen; by default a free port."
)
@click.option(
    "--browser/--no-browser", default=True, help="Open the browser, or only print the address."
)
def command(out: Output, root: Path, *, port: int | None, browser: bool) -> None:
    """Show the store ROOT in the browser, until interrupted.

    Starts a server for this machine on a free port and opens its explorer: every model with its
    history, at any time. It serves the API too, as `fourfold serve` does.
    """
    port = port or free_port()
    if browser:
        threading.Thread(target=_open_browser, args=(port,), daemon=True).start()
    click.get_current_context().invoke(
        serve.command, root=root, host=HOST, port=port, as_json=out.as_json
    )


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _open_browser(port: int) -> None:
    """Open the browser once the server accepts connections."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(POLL_S)
        else:
            webbrowser.open(f"http://{HOST}:{port}/")
            return
