"""`fourfold app`: graphs of apps, from the command line.

Every command takes ROOT first, then the app, by its slug or its number.
"""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.app import apps, changes, reads, sync
from fourfold.cli.groups import SectionedGroup, Sections

SECTIONS: Final[Sections] = (
    ("Apps", ("register", "list", "type", "types", "limits", "stats")),
    ("Change a graph", ("insert",)),
    ("Read it, now or then", ("query", "history", "feed")),
    ("Exchange it with others", ("sync",)),
)

_EPILOG: Final = """\b
Examples:
  fourfold app register ROOT notes --title "Notes"
  fourfold app type ROOT notes parent note
  fourfold app insert ROOT notes '[{"op": "parent_create", "type_key": "note"}]'
  fourfold app query ROOT notes --at 1
  fourfold app feed ROOT --follow

With FOURFOLD_ROOT set to a store, write it out as "$FOURFOLD_ROOT" where more
arguments follow. A point in history (--at) is a number of the store's log.
Every command takes --json and --traceback.
"""


@click.command("app", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Graphs: parents, attributes, edges and ratings of apps.

    An app has its own tables in the store ROOT. A batch of operations is accepted whole, under one
    number, or not at all; every past number stays readable.
    """


for _each in (
    apps.register,
    apps.list_apps,
    apps.add_type,
    apps.types,
    apps.limits,
    apps.stats,
    changes.insert,
    reads.query,
    reads.history,
    reads.feed,
    sync.command,
):
    command.add_command(_each)
