"""The list of commands, and the help screen that shows them in groups.

To add a command, write `cli/<name>.py` with a click command called `command`, and name it in
`SECTIONS`. A command's module is imported only when it runs, or when help is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

import click

from fourfold.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

SECTIONS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("Start here", ("demo",)),
    ("Keep the data safe", ("backup", "restore", "verify")),
    ("Look at the installation", ("doctor", "config", "version")),
)

_EPILOG: Final = """\b
Examples:
  fourfold demo                      see what it does, in a few seconds
  fourfold doctor                    is this machine ready?
  fourfold config ROOT               every setting, its value and its source
  fourfold backup ROOT DEST          a verified copy, while the store is in use
  fourfold verify DEST --json        is the copy sound? as JSON

Every command takes --json. Errors go to stderr with their kind and a hint,
and the exit code follows the kind.
"""


class _Commands(click.Group):
    """Loads commands by name from their files, and lists them by section."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for _, names in SECTIONS for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"fourfold.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS:
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, found.get_short_help_str(80)) for name, found in commands if found]
                )


@click.command(
    "fourfold",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Application state as append-only logs in SQLite files that you own.

    A store is one folder (ROOT). It keeps documents, streams, graphs and sessions, each as the
    fold of a log, so that every past state stays readable.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
