"""From a cut to what the JVM is told: how a table lies in its files, and which stretches of which
files each task reads. One text, since a call for each of ten thousand files would take long.

A table that does not lie in the files as it is (a join, a fold, a view) is not for the JVM; nor is
a read of a few recent commits, which an index finds.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fourfold import limits
from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import planning
from fourfold.pipeline.cut import Cut, Mark
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.planning import Stretch
from fourfold.pipeline.tables import ROOT, SPACE, Stored

_SQL: Final = load_queries("fourfold.pipeline.native", "told.sql")
_NOTHING: Final = "-"
_OF_SPACE, _OF_ROOT, _ALWAYS_NULL, _ELSEWHERE, _OF_COMMIT = -1, -2, -3, -4, -5


def is_plain(options: ReadOptions) -> bool:
    """Whether a table may lie in its files as it is, so that it is worth looking at them."""
    if options.objects is not None or options.table.folded:
        return False
    return any(options.table_name in kind.stored for kind in options.tables.kinds.values())


def told(cut: Cut, options: ReadOptions) -> str | None:
    """What the JVM is told of a read; None when it is not for the JVM."""
    kinds = {mark.kind for mark in cut.marks}
    stored = {options.tables.kinds[kind].stored.get(options.table_name) for kind in kinds}
    if len(kinds) != 1 or None in stored:
        return None
    parts = planning.stretches(cut.marks, options)
    if parts is None:
        return None
    [one] = stored
    assert one is not None
    head = _head(cut.marks[0], options, one)
    if head is None:
        return None
    tasks = planning.packed(parts, planning.task_bytes(options))
    return "\n".join([*head, *(line for task in tasks for line in _task(task))])


@dataclass(frozen=True, slots=True)
class _Form:
    """A table of SQLite's: its text, whether it has no rowids, and the fields of its records."""

    sql: str
    keyed: bool
    fields: tuple[str, ...]
    alias: str | None
    """The column that is the rowid."""

    def place(self, name: str | None) -> int:
        return self.fields.index(name) if name in self.fields else -1


def _form(mark: Mark, table: str) -> _Form | None:
    found = cuts.rows(mark, _SQL.table, (table,))
    if not found:
        return None
    [(sql, keyed)] = found
    columns = cuts.rows(mark, _SQL.columns, (table,))
    key = [name for name, _, _ in sorted(columns, key=lambda row: row[1]) if _in_key(columns, name)]
    if keyed:
        # A record without a rowid begins with its key.
        rest = [name for name, _, _ in columns if name not in key]
        return _Form(sql, True, (*key, *rest), None)
    types = {name: type_ for name, _, type_ in columns}
    alias = key[0] if len(key) == 1 and types[key[0]] == "INTEGER" else None
    return _Form(sql, False, tuple(types), alias)


def _in_key(columns: Sequence[tuple[str, int, str]], name: str) -> bool:
    return any(each == name and place for each, place, _ in columns)


def _head(mark: Mark, options: ReadOptions, stored: Stored) -> list[str] | None:
    """How the table lies in its files, as the first of them says; the JVM compares the others."""
    table, form = options.table, _form(mark, stored.table)
    if form is None:
        return None
    columns = dict(stored.columns)
    fields = {SPACE: _OF_SPACE, ROOT: _OF_ROOT}
    for column in table.columns:
        if column.name in columns:
            lies = columns[column.name]
            place = _ALWAYS_NULL if lies is None else form.place(lies)
            if lies is not None and place < 0:
                return None
            fields[column.name] = place
        else:
            fields.setdefault(column.name, _ELSEWHERE)
    commits = _commits(mark, stored)
    if stored.of_commit is not None and commits is not None:
        fields[stored.of_commit[0]] = _OF_COMMIT
    position = form.place(columns.get(table.position or ""))
    first = form.place(columns.get(table.key[0])) if table.key else -1
    about = (
        _encoded(stored.table),
        _encoded(form.sql),
        int(form.keyed),
        position,
        form.place(form.alias),
        first,
        _NOTHING if table.position is None else _encoded(table.position),
        _encoded(",".join(planning.LOOKED_UP)),
        int(table.recent is not None),
        limits.SOURCE_BUSY_TIMEOUT_MS,
        *(commits or (_NOTHING, _NOTHING, -1)),
    )
    return [
        " ".join(map(str, about)),
        " ".join(f"{name}={field}" for name, field in fields.items()),
    ]


def _commits(mark: Mark, stored: Stored) -> tuple[str, str, int] | None:
    """The table of commits and the field of the time in it, where a row has the time of its own."""
    if stored.of_commit is None:
        return None
    _, table, column = stored.of_commit
    form = _form(mark, table)
    if form is None or form.alias is None or form.place(column) < 0:
        return None
    return _encoded(table), _encoded(form.sql), form.place(column)


def _task(stretches: Sequence[Stretch]) -> Iterator[str]:
    yield str(len(stretches))
    for each in stretches:
        mark, part = each.mark, each.part
        facts = (
            _encoded(mark.path),
            int(each.still),
            _encoded(mark.space),
            _encoded(mark.root),
            _NOTHING if part.branch is None else _encoded(part.branch),
            _key(part.after),
            _key(part.upto),
            part.since,
            part.seq,
        )
        yield " ".join(map(str, facts))


def _key(key: Sequence[str] | None) -> str:
    return _NOTHING if key is None else ",".join(map(_encoded, key))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
