"""The list of commands, and the help screen that shows them in groups.

To add a command, write `cli/<name>.py` with a click command (or group) called `command`, and name
it in `SECTIONS`. A command's module is imported only when it runs, or when help is asked for.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from fourfold.cli.groups import SectionedGroup, Sections
from fourfold.version import __version__

SECTIONS: Final[Sections] = (
    ("Start here", ("demo",)),
    ("Work with documents", ("space",)),
    ("Work with graphs", ("app",)),
    ("Work with streams", ("stream", "serve", "key")),
    ("Work with sessions", ("session",)),
    ("Work over all history", ("sql", "pipeline")),
    ("Keep the data safe", ("backup", "restore", "publish", "bootstrap", "verify")),
    ("Look at the installation", ("doctor", "config", "version")),
)

_EPILOG: Final = """\b
Examples:
  fourfold demo                      see what it does, in a few seconds
  fourfold doctor                    is this machine ready?
  fourfold space --help              documents with branches and time travel
  fourfold config ROOT               every setting, its value and its source
  fourfold backup ROOT DEST          a verified copy, while the store is in use
  fourfold verify DEST --json        is the copy sound? as JSON

Every command takes --json. Errors go to stderr with their kind and a hint,
and the exit code follows the kind.
"""


class _Commands(SectionedGroup):
    """Loads commands by name from their files."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"fourfold.cli.{cmd_name}").command
        return command


@click.command(
    "fourfold",
    cls=_Commands,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def app() -> None:
    """Application state as append-only logs in SQLite files that you own.

    A store is one folder (ROOT). It keeps documents, streams, graphs and sessions, each as the
    fold of a log, so that every past state stays readable.
    """
