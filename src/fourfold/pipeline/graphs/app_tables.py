"""Expand a table of graphs into queries on the tables of the apps.

A statement covers many apps, because each statement has a cost; their number is bounded by SQLite's
limits. A condition on the app selects among them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.kernel import Queries, load_queries
from fourfold.models.graphs.records import BITS, KINDS
from fourfold.models.graphs.statements import fill
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import Condition
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.query.graphs import shapes

SQL: Final[Queries] = load_queries("fourfold.query.graphs", "tables.sql")
_NUMBER: Final = re.compile(r"\d{1,18}")


class FileApp(NamedTuple):
    """An app of a file."""

    app_id: int
    slug: str


def spread(
    bound: FileBound, options: ReadOptions, conditions: Sequence[Condition], query: str
) -> Iterator[tuple[str, ...]]:
    """Yield the queries of a table in one file, grouped by statement."""
    if "{n}" not in query:
        yield (query,)
        return
    kinds = KINDS if options.table.name == "changes" else (shapes.TABLES.get(options.table.name),)
    selected_kinds = [
        kind
        for kind in kinds
        # A table of one kind has it in its rows, if at all, and SQLite compares it.
        if kind is None
        or all(condition.holds(kind) for condition in conditions if condition.column == "kind")
    ]
    texts: list[str] = []
    for app in apps_of(bound, options, conditions):
        texts += [shapes.filled(query, app.app_id, kind) for kind in selected_kinds]
    for at in range(0, len(texts), limits.SOURCE_SELECTS_MAX):
        yield tuple(texts[at : at + limits.SOURCE_SELECTS_MAX])


def apps_of(
    bound: FileBound, options: ReadOptions, conditions: Sequence[Condition]
) -> list[FileApp]:
    """Return the selected apps of a file: all or one, limited to those in the range of seqs."""
    if bound.since and options.table.position is not None:
        rows = cuts.fetch_rows(bound, SQL.apps_between, (bound.since, bound.seq))
    else:
        rows = cuts.fetch_rows(bound, SQL.all_apps)
    apps = [FileApp(*row) for row in rows]
    if options.app is not None:
        apps = [app for app in apps if options.app in {app.slug, str(app.app_id)}]
    return [app for app in apps if _allowed(app, conditions)]


def _allowed(app: FileApp, conditions: Sequence[Condition]) -> bool:
    values: dict[str, Any] = {"app": app.slug, "app_id": app.app_id}
    return all(
        condition.holds(values[condition.column])
        for condition in conditions
        if condition.column in values
    )


def check_app(bounds: Sequence[FileBound], options: ReadOptions) -> None:
    """Raise NotFound if no file has the app."""
    if options.app is None or not bounds:
        return
    for bound in bounds:
        for row in cuts.fetch_rows(bound, SQL.all_apps):
            if options.app in {row[1], str(row[0])}:
                return
    raise NotFound(
        f"{options.location}: unknown app {options.app!r}",
        hint="Run `fourfold app list` to list the apps of a store.",
    )


def count_rows(
    bound: FileBound, options: ReadOptions, after: int, limit: int
) -> list[tuple[int, int]]:
    """Count the rows of the first `limit` seqs after `after`, up to the bound."""
    if options.table.name == "envelopes":
        return [
            (row[0], row[1])
            for row in cuts.fetch_rows(bound, SQL.count_envelopes, (after, bound.seq, limit))
        ]
    numbers = cuts.fetch_rows(bound, SQL.numbers, (after, bound.seq, limit))
    if not numbers:
        return []
    counts = {int(row[0]): 0 for row in numbers}
    until = numbers[-1][0]
    apps = {app.app_id for app in apps_of(bound, options, ())}
    written = {(row[1], kind) for row in numbers for kind in KINDS if row[2] & BITS[kind]}
    kinds = KINDS if options.table.name == "changes" else (shapes.TABLES[options.table.name],)
    for app_id, kind in sorted(written):
        if app_id in apps and kind in kinds:
            sql = fill(SQL.count_rows, app_id, kind)
            for seq, rows in cuts.fetch_rows(bound, sql, (after, until)):
                counts[seq] = counts.get(seq, 0) + rows
    return sorted(counts.items())
