"""Tables of documents.

    commits     one row for each commit          branches   one for each branch
    revisions   the log: each operation          snapshots  whole documents at some seqs
    facts       facts, by their hash             values     the values that facts refer to
    blobs       metadata; `data` if `columns` contains it
    state       every entity of a branch at the cut, folded
    history     every version of every entity of a branch, folded
    files       one row for each file: its kind, its newest seq, its problem

Every table begins with `space` and has a hidden column `root`, the store's folder, which is read
when `columns` contains it: two stores may have the same space.

`operations` is the input of folds, for both kinds of history. It is internal:

    space string, branch string, id string, seq bigint, op_index int, op string, data string

`op` is 'set', 'patch', 'delete' or 'snapshot'. `data` is the text of the document or of the list
of patches, and null for a delete. A snapshot row is the whole document after *all* operations of
its seq, so its `op_index` is `SNAPSHOT_INDEX`, greater than any other: sorted by (seq, op_index),
rows are in fold order, and a snapshot replaces everything before it (only rows of the same branch
and its ancestors are before it). Snapshots are derived: to read only the log, filter on
`op <> 'snapshot'`, which SQLite applies.

Branch chains: rows of a child have greater seqs than those that it sees of its parent, so the rows
of a chain, each branch up to its cap, sorted by (id, seq, op_index), are already in fold order.

`state` and `history` have the columns

    space string, branch string, id string, seq bigint, op string, document string

`branch` is the branch being read. `op` is the operation that produced the state: 'set', 'patch' or
'delete'; a deleted entity is a row whose document is null. `document` is JSON text, keys sorted.
`state` has one row for each entity of the branch; `seq` is that of its newest operation.
`history` has one row for each entity and seq: the state after all operations of that commit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fourfold.kernel import Queries, ReadTransaction, load_queries
from fourfold.models.documents import timestamps
from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.query.tables import SPACE, Column, Kind, ModelTables, Table, tables_by_name

MODEL = "documents"
SNAPSHOT_INDEX = 2**31 - 1
"""The op_index of a snapshot row: the state after all operations of its seq."""

_SPACE = Column(SPACE, "string", nullable=False, filtered=True)
_BRANCH = Column("branch", "string", nullable=False, filtered=True, plain=True)
_ID = Column("id", "string", nullable=False, filtered=True, plain=True)
_SEQ = Column("seq", "bigint", nullable=False, filtered=True)
_OP_INDEX = Column("op_index", "int", nullable=False)
_OP = Column("op", "string", nullable=False, filtered=True, plain=True)
_DATA = Column("data", "string", plain=True)
_TIME = Column("time", "timestamp")

_FOLDED = (
    _SPACE,
    _BRANCH,
    _ID,
    # The seq of a state is known only after the fold, so Spark applies conditions on it.
    Column("seq", "bigint", nullable=False),
    Column("op", "string", nullable=False),
    Column("document", "string"),
)
_KEY = ("branch", "id")

_TABLES = (
    Table(
        name="commits",
        model=MODEL,
        description="One row for each commit: a transaction, or the creation or end of a branch.",
        columns=(
            _SPACE,
            _SEQ,
            _BRANCH,
            Column("session", "string", nullable=False, filtered=True),
            Column("local_seq", "bigint", nullable=False),
            _TIME,
            Column("original", "string", nullable=False),
            Column("resolution", "string", nullable=False),
            Column("hash", "string"),
            Column("previous", "string"),
        ),
        query="commits",
        position="seq",
        by_position=True,
        count_query="count_commits",
    ),
    Table(
        name="revisions",
        model=MODEL,
        description="The log: one row for each operation on each entity.",
        columns=(
            _SPACE,
            _BRANCH,
            _ID,
            _SEQ,
            _OP_INDEX,
            _OP,
            _DATA,
            _TIME,
            Column("fact", "string", filtered=True),
        ),
        query="revisions",
        recent="recent_revisions",
        bulk="all_revisions",
        position="seq",
        key=_KEY,
        count_query="count_revisions",
    ),
    Table(
        name="operations",
        model=MODEL,
        description="The input of folds: the log and the snapshots.",
        columns=(_SPACE, _BRANCH, _ID, _SEQ, _OP_INDEX, _OP, _DATA),
        query="revisions",
        recent="recent_revisions",
        also="snapshot_operations",
        position="seq",
        key=_KEY,
        public=False,
    ),
    Table(
        name="facts",
        model=MODEL,
        description="Facts by their hash; none in a space of revisions.",
        columns=(
            _SPACE,
            Column("hash", "string", nullable=False, filtered=True),
            _ID,
            Column("value_ref", "string", nullable=False, filtered=True),
            Column("parent", "string", filtered=True),
            _BRANCH,
            _SEQ,
            Column("commit_ref", "string", nullable=False),
            Column("op", "string", nullable=False, filtered=True),
        ),
        query="facts",
        position="seq",
        by_position=True,
    ),
    Table(
        name="values",
        model=MODEL,
        description="The values that facts and snapshots refer to; none in a space of revisions.",
        columns=(
            _SPACE,
            Column("hash", "string", nullable=False, filtered=True),
            Column("data", "string"),
        ),
        query="values",
    ),
    Table(
        name="branches",
        model=MODEL,
        description="One row for each branch, at the cut.",
        columns=(
            _SPACE,
            _BRANCH,
            Column("parent", "string", filtered=True),
            Column("fork_seq", "bigint"),
            Column("created_seq", "bigint", nullable=False),
            Column("head_seq", "bigint", nullable=False),
            Column("status", "string", nullable=False, filtered=True),
            _TIME,
        ),
        query="branches",
        position="created_seq",
    ),
    Table(
        name="snapshots",
        model=MODEL,
        description="Whole documents at some seqs, derived to shorten replays.",
        columns=(_SPACE, _BRANCH, _ID, _SEQ, Column("document", "string", nullable=False)),
        query="snapshots",
        position="seq",
        key=_KEY,
    ),
    Table(
        name="blobs",
        model=MODEL,
        description="The blobs: hash, size, type; the bytes if `columns` contains `data`. As they "
        "are now for any `at`.",
        columns=(
            _SPACE,
            Column("hash", "string", nullable=False, filtered=True),
            Column("size", "bigint", nullable=False, filtered=True),
            Column("content_type", "string", filtered=True),
            _TIME,
            Column("data", "binary", hidden=True),
        ),
        query="blobs",
    ),
    Table(
        name="state",
        model=MODEL,
        description="Every entity of a branch at the cut, including deleted ones.",
        columns=_FOLDED,
        query="",
        position="seq",
        key=_KEY,
        reads="operations",
        options=("branch",),
    ),
    Table(
        name="history",
        model=MODEL,
        description="Every version of every entity of a branch: its state after each commit.",
        columns=_FOLDED,
        query="",
        position="seq",
        key=_KEY,
        reads="operations",
        options=("branch",),
    ),
)

_REVISIONS_SQL = load_queries("fourfold.query.documents", "tables.sql")
_FACTS_SQL = load_queries("fourfold.query.documents", "facts.sql").over(_REVISIONS_SQL)


def _kind(history: History, queries: Queries) -> Kind:
    def position_at(snapshot: ReadTransaction, time: datetime) -> int:
        return timestamps.seq_at(history.view(snapshot), time)

    return Kind(history.profile, history.migrations, history.seq, position_at, queries)


_IDENTITIES = {
    "commits": "space seq",
    "revisions": "space branch id seq op_index",
    "facts": "space hash",
    "values": "space hash",
    "branches": "space branch",
    "snapshots": "space branch id seq",
    "blobs": "space hash",
    "state": "space branch id",
    "history": "space branch id seq",
}
_DESCRIPTIONS: Final = {
    "space": "DID of the space.",
    "branch": 'Branch; "" is the default branch.',
    "id": "Id of the entity.",
    "seq": "Seq of the commit.",
    "commits.session": "Session of the client that committed.",
    "commits.local_seq": "Number of the request in that session.",
    "time": "Time of the commit.",
    "blobs.time": "Time when the blob was stored.",
    "branches.time": "Time when the branch was created.",
    "commits.original": "The request as the client sent it, as JSON.",
    "commits.resolution": "What was written for it, as JSON.",
    "commits.hash": "Hash of the commit, in a space of facts.",
    "commits.previous": "Hash of the commit before it.",
    "op_index": "Place of the operation in its commit.",
    "op": "Operation: set, patch or delete.",
    "revisions.data": "The document or the list of patches, as JSON; null for a delete.",
    "values.data": "The value, as JSON.",
    "blobs.data": "The bytes.",
    "revisions.fact": "Hash of the fact, in a space of facts.",
    "hash": "Hash of the content.",
    "value_ref": "Hash of the value of the fact.",
    "facts.parent": "Hash of the fact before it.",
    "branches.parent": "Branch from which it was created; null for the default branch.",
    "commit_ref": "Hash of the commit of the fact.",
    "fork_seq": "Seq of the parent at which the branch begins.",
    "created_seq": "Seq of the commit that created the branch.",
    "head_seq": "Newest seq on the branch.",
    "status": "Whether the branch is active or deleted.",
    "document": "The whole document, as JSON; null if the entity is deleted.",
    "size": "Number of bytes.",
    "content_type": "Media type of the blob.",
}
"""Descriptions of columns, by name, or by `table.column` where tables differ."""

TABLES = ModelTables(
    model=MODEL,
    folder="spaces",
    suffix=".sqlite",
    kinds={
        REVISIONS.profile.name: _kind(REVISIONS, _REVISIONS_SQL),
        FACTS.profile.name: _kind(FACTS, _FACTS_SQL),
    },
    tables=tables_by_name(MODEL, _TABLES, _IDENTITIES, _DESCRIPTIONS),
    rows="fourfold.query.documents.rows",
)
