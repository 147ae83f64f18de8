"""`fourfold pipeline`: the jobs that work over all history, on Spark."""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.groups import SectionedGroup, Sections
from fourfold.cli.pipeline import records, running

SECTIONS: Final[Sections] = (
    ("Jobs", ("list", "run")),
    ("What was done", ("status", "history")),
)

_EPILOG: Final = """\b
Examples:
  fourfold pipeline list
  fourfold pipeline run load ROOT --from notes.ndjson --space did:web:shop.example
  fourfold pipeline run load ROOT --from notes.ndjson --space did:web:shop.example --dry-run
  fourfold pipeline history ROOT

Spark runs on this machine unless --master or --remote says otherwise.
Every command takes --json and --traceback.
"""


@click.command("pipeline", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Jobs over all history, on Spark.

    A job works off what is new since its last run, makes its result visible all at once, and leaves
    a row that says what it did. One that was killed is taken up by the next run.
    """


for _each in (records.list_jobs, running.run, records.status, records.history):
    command.add_command(_each)
