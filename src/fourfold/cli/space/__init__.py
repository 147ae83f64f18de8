"""`fourfold space`: commands on documents.

Every command takes ROOT and DID first, then its own arguments.
"""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.space import (
    blobs,
    branches,
    documents,
    feed,
    find,
    maintenance,
    search,
)

SECTIONS: Final[Sections] = (
    ("Spaces", ("create", "list", "verify", "maintain", "gc")),
    ("Change documents", ("set", "patch", "delete", "revert")),
    ("Read, now or in the past", ("get", "ids", "log", "history", "diff", "search", "follow")),
    ("Find", ("find", "count", "facets", "index")),
    ("Branches", ("branch", "merge")),
    ("Bytes", ("blob",)),
    ("Move a space", ("export", "import", "carry")),
)

_EPILOG: Final = """\b
Examples:
  fourfold space create ROOT did:web:shop.example
  fourfold space set ROOT did:web:shop.example note '{"title": "Hello"}'
  fourfold space patch ROOT did:web:shop.example note \\
      '{"op": "replace", "path": "/title", "value": "Hello, world"}'
  fourfold space get ROOT did:web:shop.example note --at 1

ROOT is an argument, --root or FOURFOLD_ROOT. --at takes a seq or a time.
Every command takes --json and --traceback.
"""


@click.command(
    "space",
    cls=SectionedGroup,
    sections=SECTIONS,
    epilog=_EPILOG,
)
def command() -> None:
    """Documents: set, patch, branch, merge, time travel.

    A space is a set of documents with their whole history, in one file of the store ROOT. Its name
    is a DID. An entity is a JSON object with an ID; every change is a commit with a seq.
    """


for _each in (
    maintenance.create,
    maintenance.list_spaces,
    maintenance.verify,
    maintenance.maintain,
    maintenance.gc,
    documents.set_document,
    documents.patch_document,
    documents.delete_document,
    documents.get,
    documents.ids,
    documents.log,
    documents.history,
    branches.diff,
    search.search,
    feed.follow,
    find.find,
    find.count,
    find.facets,
    find.index,
    branches.revert,
    branches.merge,
    branches.branch,
    blobs.blob,
    maintenance.export_space,
    maintenance.import_space,
    maintenance.carry,
):
    command.add_command(_each)
