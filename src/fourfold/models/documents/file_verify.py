"""Verification of the file of a space: pages, schema, counters, and the rules of the model.

The rules are those of `fourfold.models.documents.verify`. They can be applied one by one, and each
to a part of the keys: `fourfold verify` checks one file after the other in one process, and the
pipeline's job `verify` spreads one file over many.

Nothing here writes or takes the writer's lock. Each part sees one committed state.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from fourfold.errors import FourfoldError
from fourfold.kernel import Database, inspection, migrations
from fourfold.kernel.transaction import SQL
from fourfold.models.documents import verify
from fourfold.models.documents.histories import history_in
from fourfold.models.documents.history import History, HistoryReader
from fourfold.models.documents.problems import KeyRange, Rule, make_problem
from fourfold.models.problem import Problem

PAGES: Final = "pages"
SCHEMA: Final = "schema"


def rules_of(history: History) -> tuple[Rule, ...]:
    """Return the rules for the file, in the order in which they are checked."""
    return (Rule(PAGES, "", _nothing), Rule(SCHEMA, "", _nothing), *verify.rules(history))


def verify_file(
    path: Path, only: Collection[str] = (), part: KeyRange | None = None
) -> Iterator[Problem]:
    """Return the problems of the file; with `only`, by these rules, applied to `part`.

    A file that cannot be opened is a problem too. An error that is not about the file, such as a
    busy database, is raised.
    """
    try:
        history = history_in(path)
        if not only or PAGES in only:
            for problem in inspection.check(path, (history.seq,)):
                yield make_problem(problem, PAGES)
        if not only or SCHEMA in only:
            with opened(path, history) as view:
                yield from _schema(view, history)
                yield from _meta(view, history)
        if not only:
            with _open_file(path, history) as database:
                open_view = partial(_open_state, database, history)
                yield from verify.iter_problems_in_slices(
                    open_view, open_view, history, path.stat().st_size
                )
        elif set(only) - {PAGES, SCHEMA}:
            with opened(path, history) as view:
                yield from verify.iter_problems(view, history, only, part)
    except FourfoldError as error:
        if error.retryable:
            raise
        yield make_problem(error.message, "file", expected="a sound space", found=error.kind)


@contextmanager
def opened(path: Path, history: History) -> Iterator[HistoryReader]:
    """Open one committed state of the space in a file for reading."""
    with _open_file(path, history) as database, _open_state(database, history) as view:
        yield view


def _open_file(path: Path, history: History) -> Database:
    return Database.open(
        path,
        profile=history.profile,
        migrations=history.migrations,
        sequences=(history.seq,),
        mode="r",
    )


@contextmanager
def _open_state(database: Database, history: History) -> Iterator[HistoryReader]:
    with database.read_step() as snapshot:
        yield history.view(snapshot)


def _meta(view: HistoryReader, history: History) -> Iterator[Problem]:
    """Check the metadata of a file against known values."""
    stored: dict[str, str] = dict(view.all(SQL.meta_all))
    expected = {name: re.escape(str(number)) for name, number in history.profile.rules}
    expected |= {"database_id": "[0-9a-f]{32}", "content_encoding": "c1"}
    expected |= {"sequences": re.escape(history.seq.name), "model": re.escape(history.profile.name)}
    for key, pattern in expected.items():
        value = stored.get(key)
        # Files from before the rules had a version number have none.
        if value is None and key in dict(history.profile.rules):
            continue
        if value is None or not re.fullmatch(pattern, value):
            sentence = f"kernel_meta {key!r}: is not what it is in every file"
            yield make_problem(sentence, "kernel_meta", {"key": key}, expected=pattern, found=value)


def _schema(view: HistoryReader, history: History) -> Iterator[Problem]:
    optional = list(_indexes(history))
    for difference in migrations.differences(view.snapshot, history.migrations, optional):
        yield make_problem(
            f"{difference.kind} {difference.name}: is not made as it should be",
            "sqlite_schema",
            {"type": difference.kind, "name": difference.name},
            expected=difference.expected,
            found=difference.found,
        )


def _indexes(history: History) -> Iterator[str]:
    """Return the indexes that the first garbage collection of a space creates."""
    for name in history.sql:
        if name.startswith("index_"):
            yield getattr(history.sql, name)


def _nothing(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Return nothing: rules about the file itself do not apply to rows."""
    del view, part
    return iter(())
