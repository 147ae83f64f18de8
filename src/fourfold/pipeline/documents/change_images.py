"""Changes of documents with their images before and after, from the log in an archive.

A change is one version of a document of a branch: what a commit left of it, and what was there
before. The first one of a branch follows what the branch has of its parent. Spaces with the history
`facts` have no rows here; their log is the table of facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.pipeline.image_changes import (
    EVERY_BRANCH,
    PRESENT,
    ImageLog,
    ImageTask,
    SmallRows,
    kind_of,
    new_rows,
    rows_of,
)
from fourfold.query.documents.row_fold import iter_versions
from fourfold.query.tables import Column

LOG: Final = "documents.revision"
_HORIZONS: Final = "documents.gc_horizon"
_BRANCHES: Final = "documents.branch"
_COLUMNS: Final = (
    Column("space", "string"),
    Column("file_id", "string"),
    Column("branch", "string"),
    Column("id", "string"),
    Column("seq", "bigint"),
    Column("change", "string"),
    Column("op", "string"),
    Column("before", "string"),
    Column("after", "string"),
    Column("_point", "bigint"),
)
_KEYS: Final = (FILE_ID, OP, POINT, "branch", "id")
_LOG_COLUMNS: Final = (*_KEYS, "space", "seq", "op_index", "op", "data")

Key = tuple[str, str, str]
"""The id of a database file, a branch, and the id of a document."""
Fork = tuple[str, int]
"""The parent of a branch, and the seq at which it was forked."""


class ShownRow(NamedTuple):
    """A row that a branch shows of a document."""

    seq: int
    op_index: int
    op: str
    data: str | None
    point: int
    is_own: bool
    """False if the branch has it of its parent."""


@dataclass(slots=True)
class DocumentLog:
    """The rows of a document on a branch that were published until the end of a batch."""

    space: str = ""
    rows: list[ShownRow] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    """Seqs of rows that gc has removed."""


@dataclass(slots=True)
class SpaceFacts:
    """Facts about a space beside its log: the seq until which gc may have removed rows, and the
    forks of its branches by their names.
    """

    horizon: int = 0
    forks: dict[str, Fork] = field(default_factory=dict)

    def bounds(self, branch: str) -> dict[str, int | None]:
        """Return the branches whose rows one shows, each with the last seq, None for its own."""
        bounds: dict[str, int | None] = {branch: None}
        until: int | None = None
        while branch in self.forks:
            branch, fork_seq = self.forks[branch]
            until = fork_seq if until is None else min(until, fork_seq)
            bounds[branch] = until
        return bounds


def _facts(rows: SmallRows, until: int) -> Mapping[str, SpaceFacts]:
    found: dict[str, SpaceFacts] = {}
    for table in rows(_HORIZONS, (FILE_ID, POINT, "seq")):
        for row in table.to_pylist():
            if row[POINT] <= until:
                facts = found.setdefault(row[FILE_ID], SpaceFacts())
                facts.horizon = max(facts.horizon, row["seq"] or 0)
    for table in rows(_BRANCHES, (FILE_ID, POINT, OP, "name", "parent_branch", "fork_seq")):
        for row in table.to_pylist():
            # A fork never changes, so any version of the row of a branch names it.
            if row[OP] in PRESENT and row["fork_seq"] is not None:
                facts = found.setdefault(row[FILE_ID], SpaceFacts())
                facts.forks[row["name"]] = row["parent_branch"], row["fork_seq"]
    return found


def _read(task: ImageTask) -> Iterator[dict[str, Any]]:
    """Yield the changes of a task, in the order of databases, branches and documents."""
    logs = _read_logs(task)
    for key in sorted(logs):
        yield from _changes(key, logs[key], task)


def _read_logs(task: ImageTask) -> dict[Key, DocumentLog]:
    """Return the logs of the documents that changed in the points of a batch, until its end."""
    logs: dict[Key, DocumentLog] = {}
    for row in new_rows(task, _KEYS):
        if task.branch in {EVERY_BRANCH, row["branch"]}:
            logs[row[FILE_ID], row["branch"], row["id"]] = DocumentLog()
    if not logs:
        return logs
    shown: dict[tuple[str, str], list[tuple[str, dict[str, int | None]]]] = {}
    for file_id, branch, name in logs:
        bounds = _facts_of(task, file_id).bounds(branch)
        shown.setdefault((file_id, name), []).append((branch, bounds))
    for row in rows_of(task, _LOG_COLUMNS, "id", (name for _, _, name in logs)):
        for branch, bounds in shown.get((row[FILE_ID], row["id"]), ()):
            until = bounds.get(row["branch"], -1)
            if until is not None and row["seq"] > until:
                continue
            log = logs[row[FILE_ID], branch, row["id"]]
            if row[OP] == PUT:
                log.space = row["space"]
                values = (row[name] for name in ("seq", "op_index", "op", "data", POINT))
                log.rows.append(ShownRow._make((*values, row["branch"] == branch)))
            else:
                log.removed.append(row["seq"])
    return logs


def _facts_of(task: ImageTask, file_id: str) -> SpaceFacts:
    facts = task.facts.get(file_id)
    return SpaceFacts() if facts is None else facts


def _changes(key: Key, log: DocumentLog, task: ImageTask) -> Iterator[dict[str, Any]]:
    """Yield the changes of a document on a branch in the points of a batch."""
    file_id, branch, name = key
    rows = _needed_rows(log, task.after, _facts_of(task, file_id).horizon)
    if rows is None:
        raise HistoryTruncated(
            f"space {log.space!r}: gc removed rows of the document {name!r}, so its images are"
            " not known",
            hint=f"Read the table {LOG!r}, or start a new query.",
        )
    points = {row.seq: row.point for row in rows if row.is_own}
    entity = (log.space, branch, name)
    before: str | None = None
    versions = iter_versions(entity, ((entity, row.seq, row.op, row.data) for row in rows))
    for *_, seq, op, document in versions:
        if points.get(seq, -1) > task.after:
            yield {
                "space": log.space,
                "file_id": file_id,
                "branch": branch,
                "id": name,
                "seq": seq,
                "change": kind_of(before, document),
                "op": op,
                "before": before,
                "after": document,
                POINT: points[seq],
            }
        before = document


def _needed_rows(log: DocumentLog, after: int, horizon: int) -> list[ShownRow] | None:
    """Return the rows from the last whole document before the changes on; None if some of them may
    have been removed.
    """
    rows = sorted(log.rows)
    first = next(at for at, row in enumerate(rows) if row.is_own and row.point > after)
    base = max((at for at in range(first) if rows[at].op != "patch"), default=None)
    start = 0 if base is None else base
    if rows[start].op == "patch" or rows[first].seq <= horizon:
        return None
    lowest = 0 if base is None else rows[base].seq
    return None if any(seq >= lowest for seq in log.removed) else rows[start:]


IMAGES: Final = {
    "documents.changes": ImageLog(
        "documents.changes",
        LOG,
        _COLUMNS,
        _read,
        _facts,
        profile=REVISIONS.profile,
        branches=True,
    )
}
