"""Publication of a graph database, and the derived data that a restore rebuilds.

The log is the envelopes and the rows of every app; flags of rows that are set later are noticed by
triggers. Small tables (apps, settings, peers, how far syncs are) are carried as a whole when they
changed. Logs of sync are carried with the ids and bodies of their rows. The cache of identities and
the indexes and intervals of rows are rebuilt from the graph, and the queue of rows to sign from the
log; the incarnation of the node and results that apps cache to save work are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fourfold.archive.publication import ChangedRows, Description, PublicationTable
from fourfold.kernel import Database, ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import intervals, row_index
from fourfold.models.graphs.records import KINDS, SYSTEM_APP
from fourfold.models.graphs.statements import SQL, fill
from fourfold.models.graphs.sync import identities

_SQL = load_queries("fourfold.models.graphs", "publication.sql")
_OF_APP = re.compile(r"app_([0-9]+)_(\w+)")
_SYSTEM_TABLES = f"app_{SYSTEM_APP}_"
_WHOLE = (
    "apps",
    "app_migrations",
    "app_usage",
    "type_rule",
    "settings",
    "peers",
    "sync_domains",
    "sync_state",
    "sync_sent",
    "sync_peer_domain",
    "sync_domain_app",
    "sync_peer_tip",
    "sync_fork",
    "sync_parked",
    "domain_seq",
    "global_seq",
)


def _of_apps(snapshot: ReadTransaction) -> tuple[PublicationTable, ...]:
    """Return the tables of every app. Tables that an app created are published whole."""
    return tuple(_table(str(row[0])) for row in snapshot.all(_SQL.tables))


def _table(name: str) -> PublicationTable:
    match = _OF_APP.fullmatch(name)
    noun = "" if match is None else match[2]
    if match is not None and noun in KINDS:
        app_id = int(match[1])
        return PublicationTable(
            name,
            ("id",),
            position="global_seq",
            watch=("update of sync_flags",),
            everything=fill(_SQL.all_rows, app_id, noun),
            new=fill(_SQL.new_rows, app_id, noun),
            newest=fill(_SQL.greatest, app_id, noun),
            group=noun,
        )
    if noun in {"type", "log"}:
        return PublicationTable(name, ("id",), position="id", group=noun)
    return PublicationTable(name, whole=True, group="app_table", packed=True)


def _rebuild(database: Database) -> None:
    with database.write(deadline_s=float("inf")) as txn:
        row_index.replace_indexes(txn)
        intervals.rebuild(txn)
        identities.rebuild(txn, drop_unknown=True)


def _advance(txn: Transaction, changes: Sequence[ChangedRows]) -> bool:
    """Rebuild the indexes of kinds that changed, and identities if the system's own app did."""
    groups = {_table(change.table).group for change in changes}
    row_index.rebuild(txn, tuple(kind for kind in KINDS if kind in groups))
    if kinds := tuple(kind for kind in intervals.DERIVED if kind in groups):
        intervals.rebuild(txn, kinds)
    if any(change.table.startswith(_SYSTEM_TABLES) for change in changes):
        identities.rebuild(txn, drop_unknown=True)
    return True


PUBLICATION = Description(
    (
        PublicationTable(
            "envelopes",
            ("global_seq", "app_id"),
            position="global_seq",
            watch=("update of sync_flags",),
        ),
        *(PublicationTable(name, whole=True) for name in _WHOLE),
        PublicationTable("sync_log", ("id",), position="id"),
        PublicationTable(
            "sync_entry", ("arrival",), position="arrival", watch=("update of is_tip",)
        ),
        PublicationTable("sync_row", ("id",), position="id", watch=("update of local_id, body",)),
        PublicationTable("sync_member", ("id",), position="id"),
    ),
    newest=SQL.last_seq,
    more=_of_apps,
    schema=_SQL.schema,
    rebuild=_rebuild,
    advance=_advance,
)
