"""`fourfold session`: what agents did, from the command line.

Every command takes ROOT first, and most of them the id of a session.
"""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.groups import SectionedGroup, Sections
from fourfold.cli.session import exchange, lineage, reads, upkeep

SECTIONS: Final[Sections] = (
    ("Look at sessions", ("list", "show", "log", "payload", "tree", "diff")),
    ("Take them elsewhere", ("export", "import")),
    ("Keep them sound", ("verify", "gc")),
)

_EPILOG: Final = """\b
Examples:
  fourfold session list ROOT
  fourfold session show ROOT SID --at 12
  fourfold session log ROOT SID --follow
  fourfold session tree ROOT SID

With FOURFOLD_ROOT set, ROOT may be left out. Every command takes --json and
--traceback.
"""


@click.command("session", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Sessions: events, views, heads.

    A session is a log of events; what is shown of it is folded from them, now or as of any event or
    head.
    """


for _each in (
    reads.list_sessions,
    reads.show,
    reads.log,
    reads.read_payload,
    lineage.tree,
    lineage.diff,
    exchange.export_session,
    exchange.import_sessions,
    upkeep.verify,
    upkeep.gc,
):
    command.add_command(_each)
