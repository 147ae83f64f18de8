"""The folded tables of documents in process: `state` and `history`, entity by entity.

Only the rows that a fold needs are read, and a document is folded when the query reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from fourfold.errors import HistoryTruncated
from fourfold.query.documents.fold_query import build_query
from fourfold.query.documents.lines import BranchLine, LineLink, select_lines
from fourfold.query.documents.row_fold import (
    SNAPSHOT,
    WHOLE_OPS,
    Entity,
    iter_versions,
    replay_text,
)
from fourfold.query.files import FoldedTable, QueryFile
from fourfold.query.tables import Kind

_id_of = itemgetter(0)


def _lines(file: QueryFile, constraints: Mapping[str, Any]) -> list[BranchLine]:
    """Return the selected lines of a file: one branch, or every branch that existed."""
    branch = str(constraints.get("on_branch") or "")
    lines = (
        [BranchLine("", (LineLink("", file.seq),))]
        if not branch
        else select_lines(
            file.snapshot.all(file.kind.queries.branch_lines, (file.seq,)),
            branch,
            file.seq,
            str(file.path),
        )
    )
    name = constraints.get("branch")
    return [line for line in lines if name is None or line.branch == name]


def _input(
    file: QueryFile, line: BranchLine, constraints: Mapping[str, Any], *, versions: bool
) -> Iterator[tuple[Any, ...]]:
    entity = constraints.get("id")
    sql, parameters = _query(file.kind, line, versions=versions, one=entity is not None)
    return file.snapshot.rows(sql, parameters if entity is None else (entity, *parameters))


@lru_cache(maxsize=256)
def _query(
    kind: Kind, line: BranchLine, *, versions: bool, one: bool
) -> tuple[str, tuple[Any, ...]]:
    """Return the query for the input of a fold; cached, because a join looks up many entities.

    With `one`, its first parameter is the id of the only entity.
    """
    sql, parameters = build_query(
        kind.queries,
        line.links,
        versions=versions,
        since=line.since,
        conditions=(lambda first: ([f'"id" = ?{first}'], [""])) if one else None,
        typed=False,
    )
    return sql, tuple(parameters[1:] if one else parameters)


def state_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield every entity of the selected branches, including deleted ones."""
    readable = file.kind.queries.readable
    for line in _lines(file, constraints):
        if file.is_past and not file.snapshot.value(readable, (line.branch, file.seq)):
            name = f"branch {line.branch!r}" if line.branch else "the default branch"
            raise HistoryTruncated(f"{file.path}: gc removed the state of {name} at seq {file.seq}")
        space, branch = file.space, line.branch
        for entity, group in groupby(_input(file, line, constraints, versions=False), _id_of):
            pending: list[tuple[Any, ...]] = []
            for row in group:
                if row[3] != "patch":
                    pending.clear()
                pending.append(row)
            newest = pending[-1]
            seq, op = newest[1], newest[3]
            if op == "patch":
                document: Any = partial(_document, (space, branch, entity), pending)
            else:
                document = newest[4]
                if op == SNAPSHOT:
                    op = "patch"
            yield (space, branch, entity, seq, op, document)


def _document(key: tuple[str, str, str], rows: list[tuple[Any, ...]]) -> str | None:
    """Return the document after the last row, as text."""
    if rows[0][3] in WHOLE_OPS:
        text = replay_text(rows[0][4], [row[4] for row in rows[1:]])
        if text is not None:
            return text
    entity = Entity(key)
    entity.add([(key, row[1], row[3], row[4]) for row in rows])
    document: str | None = entity.newest()[-1]
    return document


def history_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the state of every entity of the selected branches after each commit."""
    # Everything after the horizon is readable; the horizon itself is the first whole version.
    horizon = int(file.snapshot.value(file.kind.queries.horizon))
    since = max(horizon - 1, 0)
    for line in _lines(file, constraints):
        space, branch = file.space, line.branch
        rows = _input(file, line._replace(since=since), constraints, versions=True)
        for entity, group in groupby(rows, _id_of):
            key = (space, branch, entity)
            versions = iter_versions(key, ((key, row[1], row[3], row[4]) for row in group))
            for version in versions:
                if version[3] > since:
                    yield version


_ARGUMENTS: Final = ("on_branch", "at")
_KEYS: Final = ("id", "space", "branch")
FOLDED: Final = {
    "state": FoldedTable(state_rows, _ARGUMENTS, _KEYS),
    "history": FoldedTable(history_rows, _ARGUMENTS, _KEYS),
}
