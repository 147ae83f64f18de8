"""The tallies in the registry: a database for each tally."""

from __future__ import annotations

from functools import partial

from fourfold.archive.publication import Description, PublicationTable
from fourfold.errors import InvalidInput
from fourfold.kernel import Profile, load_migrations
from fourfold.models.model import FileKind, Location, Model, verify_file
from tally.tally import SEQ, SQL, Tally


def check_name(name):
    if not name.isalpha():
        raise InvalidInput(f"tally name must be letters, got {name!r}")


KIND = FileKind(
    name="tally",
    profile=Profile("tally", synchronous="NORMAL"),
    migrations=load_migrations("tally"),
    sequences=(SEQ,),
    publication=Description(
        (PublicationTable("vote", ("seq",), position="seq"),),
        newest=SQL.last_seq,
        rebuild=lambda database: Tally(database).rebuild(),
    ),
)

MODEL = Model(
    name="tallies",
    kinds=(KIND,),
    location=Location("tallies", "*.sqlite", check_name),
    open=lambda database, _kind, _context: Tally(database),
    pipeline="tally.pipeline",
    verify=partial(verify_file, kind=KIND, check=lambda database: Tally(database).verify()),
)
