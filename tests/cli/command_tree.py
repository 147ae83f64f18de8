"""All commands of the program, by their names: `space list`, `app sync key`."""

from __future__ import annotations

import click

from fourfold.cli.main import app


def commands(group=app, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())
