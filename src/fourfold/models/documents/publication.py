"""Publication of a space, and the derived data that a restore rebuilds.

The log is commits, branches and revisions (or facts with their values), and blobs. A collection
takes rows out of it and changes some; that is published too, with the horizon, so that a restored
space knows its horizon. Heads are rebuilt; snapshots only where reading would be slow
without them, except for those with which a collected log begins. Of an index the declaration is
published, and its entries are built from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fourfold.archive.publication import ChangedRows, Content, Description, PublicationTable
from fourfold.kernel import Database, Transaction, load_queries
from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.indexes.maintenance import advance_entities
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.models.documents.snapshots import keep_if_deep, maintain
from fourfold.models.documents.space import Space

_SQL = load_queries("fourfold.models.documents", "publication.sql")
_ENTITY = ("branch", "id", "seq", "op_index")
_BRANCH = PublicationTable(
    "branch", ("name",), new=_SQL.branches, watch=("insert", "update of status")
)
_SHARED = (
    PublicationTable(
        "blob_store",
        ("hash",),
        watch=("insert", "update of created_at", "delete"),
        content=Content("hash", "data"),
    ),
    PublicationTable("index_declaration", whole=True),
    PublicationTable("gc_policy", whole=True),
    PublicationTable("gc_horizon", whole=True),
    PublicationTable("gc_point", whole=True),
    PublicationTable("gc_seal", ("seq",), watch=("insert", "update of seal", "delete")),
    PublicationTable("gc_gap", _ENTITY, watch=("insert", "update of lost_seq", "delete")),
    PublicationTable("gc_base", _ENTITY[:3], watch=("insert", "update of digest", "delete")),
    PublicationTable(
        "snapshot",
        _ENTITY[:3],
        source="gc_base",
        everything=_SQL.bases,
        changed=(_SQL.changed_bases,),
    ),
)


def _rebuild(heads: str, history: History, database: Database) -> None:
    with database.write(deadline_s=float("inf")) as txn:
        txn.execute(heads)
    space = Space(database.path.stem, database, history)
    maintain(space, "all", ())
    space.indexes.builder.run()


class _Log(NamedTuple):
    """The table of a history that has a row for each change of an entity."""

    history: History
    table: str
    head: str
    """Statement that stores the head of one entity."""


_REBUILT = frozenset(
    ("index_declaration", "gc_horizon", "gc_point", "gc_seal", "gc_gap", "gc_base", "snapshot")
)
"""Tables whose changes affect derived data of the whole space."""


def _advance(log: _Log, txn: Transaction, changes: Sequence[ChangedRows]) -> bool:
    """Update heads, entries of indexes and snapshots of the entities that have new rows."""
    if any(change.deleted or change.table in _REBUILT for change in changes):
        return False
    entities = {
        (branch, entity)
        for change in changes
        if change.table == log.table
        for branch, entity in change.values("branch", "id")
    }
    if not entities:
        return True
    view, ordered = log.history.view(txn), sorted(entities)
    advance_entities(txn, view, ordered, lambda key: txn.execute(log.head, key))
    for branch, entity in ordered:
        keep_if_deep(txn, log.history, branch, entity)
    return True


PUBLICATIONS: dict[str, Description] = {
    REVISIONS.name: Description(
        (
            _BRANCH,
            PublicationTable("commit", ("seq",), position="seq", watch=("update of original",)),
            PublicationTable("revision", _ENTITY, position="commit_seq", watch=("delete",)),
            *_SHARED,
        ),
        newest=REVISIONS.sql.last_seq,
        rebuild=partial(_rebuild, _SQL.heads_of_revisions, REVISIONS),
        advance=partial(_advance, _Log(REVISIONS, "revision", _SQL.head_of_revisions)),
    ),
    FACTS.name: Description(
        (
            _BRANCH,
            PublicationTable(
                "value",
                ("hash",),
                everything=_SQL.all_values,
                new=_SQL.facts_values,
                watch=("delete",),
                changed=(_SQL.values_of_bases,),
            ),
            PublicationTable("commit", ("hash",), position="seq", watch=("update of original",)),
            PublicationTable(
                "fact",
                ("hash",),
                new=_SQL.facts,
                watch=("update of branch, seq, commit_ref", "delete"),
            ),
            PublicationTable("occurrence", _ENTITY, new=_SQL.occurrences, watch=("delete",)),
            *_SHARED,
        ),
        newest=FACTS.sql.last_seq,
        rebuild=partial(_rebuild, _SQL.heads_of_facts, FACTS),
        advance=partial(_advance, _Log(FACTS, "occurrence", _SQL.head_of_facts)),
    ),
}
"""By the name of the history."""
