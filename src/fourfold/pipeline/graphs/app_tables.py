"""From one table of graphs to the tables of the apps: which queries on which of them.

A statement asks many apps at once, because each has its price; how many is bounded by what SQLite
takes. A condition on the app chooses among them before anything is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.kernel import Queries, load_queries
from fourfold.models.graphs.records import BITS, KINDS
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import Condition
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.graphs import shapes
from fourfold.pipeline.options import ReadOptions

SQL: Final[Queries] = load_queries("fourfold.pipeline.graphs", "tables.sql")
_NUMBER: Final = re.compile(r"\d{1,18}")


class App(NamedTuple):
    app_id: int
    slug: str


def spread(
    mark: FileBound, options: ReadOptions, conditions: Sequence[Condition], query: str
) -> Iterator[tuple[str, ...]]:
    """The queries that a table is in one file, those of one statement together."""
    if "{n}" not in query:
        yield (query,)
        return
    kinds = KINDS if options.table.name == "changes" else (shapes.TABLES.get(options.table.name),)
    wanted = [
        kind
        for kind in kinds
        # A table of its own kind says so in its rows, if it does, and SQLite looks at them.
        if kind is None or all(each.holds(kind) for each in conditions if each.column == "kind")
    ]
    texts: list[str] = []
    for app in apps_of(mark, options, conditions):
        for kind in wanted:
            filled = query.replace("{n}", str(app.app_id))
            if kind is not None:
                filled = filled.replace("{kind}", kind).replace("{columns}", shapes.selected(kind))
            texts.append(filled)
    for at in range(0, len(texts), limits.SOURCE_SELECTS_MAX):
        yield tuple(texts[at : at + limits.SOURCE_SELECTS_MAX])


def apps_of(mark: FileBound, options: ReadOptions, conditions: Sequence[Condition]) -> list[App]:
    """The apps of a file that are wanted: all, or one; and of a range of numbers, those in it."""
    if mark.since and options.table.position is not None:
        rows = cuts.fetch_rows(mark, SQL.apps_between, (mark.since, mark.seq))
    else:
        rows = cuts.fetch_rows(mark, SQL.all_apps)
    found = [App(*row) for row in rows]
    if options.app is not None:
        found = [each for each in found if options.app in {each.slug, str(each.app_id)}]
    return [each for each in found if _allowed(each, conditions)]


def _allowed(app: App, conditions: Sequence[Condition]) -> bool:
    known: dict[str, Any] = {"app": app.slug, "app_id": app.app_id}
    return all(each.holds(known[each.column]) for each in conditions if each.column in known)


def check_app(marks: Sequence[FileBound], options: ReadOptions) -> None:
    """Refuse an app that no file has: its name is wrong."""
    if options.app is None or not marks:
        return
    for mark in marks:
        for row in cuts.fetch_rows(mark, SQL.all_apps):
            if options.app in {row[1], str(row[0])}:
                return
    raise NotFound(
        f"no store of {options.location} has an app {options.app!r}",
        hint="`fourfold app list` names the apps of a store.",
    )


def counted(mark: FileBound, options: ReadOptions, after: int, most: int) -> list[tuple[int, int]]:
    """How many rows the first numbers behind one have, up to the end of the mark."""
    if options.table.name == "envelopes":
        return [
            (row[0], row[1])
            for row in cuts.fetch_rows(mark, SQL.count_envelopes, (after, mark.seq, most))
        ]
    numbers = cuts.fetch_rows(mark, SQL.numbers, (after, mark.seq, most))
    if not numbers:
        return []
    counts = {int(row[0]): 0 for row in numbers}
    upto = numbers[-1][0]
    apps = {each.app_id for each in apps_of(mark, options, ())}
    written = {(row[1], kind) for row in numbers for kind in KINDS if row[2] & BITS[kind]}
    asked = KINDS if options.table.name == "changes" else (shapes.TABLES[options.table.name],)
    for app_id, kind in sorted(written):
        if app_id in apps and kind in asked:
            sql = SQL.count_rows.replace("{n}", str(app_id)).replace("{kind}", kind)
            for seq, rows in cuts.fetch_rows(mark, sql, (after, upto)):
                counts[seq] = counts.get(seq, 0) + rows
    return sorted(counts.items())
