"""Commands in groups: a help screen that lists them by what they are for, shown also when no
command is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

Sections = Sequence[tuple[str, Sequence[str]]]
"""The title of each section, and the names of the commands in it."""


class SectionedGroup(click.Group):
    """Lists its commands by section, in the order that is given."""

    def __init__(self, *args: Any, sections: Sections, **attributes: Any) -> None:
        attributes |= {
            "callback": _help_if_nothing_is_asked_for,
            "invoke_without_command": True,
            "subcommand_metavar": "COMMAND [ARGS]...",
        }
        super().__init__(*args, **attributes)
        self.sections = sections

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; `ls` is `list`, as hands expect it to be."""
        found = super().get_command(ctx, cmd_name)
        return super().get_command(ctx, "list") if found is None and cmd_name == "ls" else found

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for _, names in self.sections for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections:
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, found.get_short_help_str(80)) for name, found in commands if found]
                )


def _help_if_nothing_is_asked_for() -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
