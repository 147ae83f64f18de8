"""Removal of text versions below the horizon, and verification of full-text indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.content.text import tokens
from fourfold.kernel import Transaction
from fourfold.models.documents.ancestry import BranchLink, chain
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import Index
from fourfold.models.documents.indexes.entries import (
    EntityLog,
    Interval,
    readable_intervals,
    readable_versions,
)
from fourfold.models.documents.indexes.text import SQL, TextBuild, Texts, table_of
from fourfold.models.documents.problems import make_problem
from fourfold.models.problem import Problem

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

Version = tuple[bytes, Interval]
"""A digest of texts, and when an entity of a branch had them."""
_COMPARED_WORDS: Final = 64
"""Words of a version that are looked up: from its beginning, and from its end."""


def trim(space: Space, index: Index, retained: dict[str, list[int]], least: int) -> int:
    """Delete the versions that no reader can see any more; return how many."""
    count = last = 0
    while True:
        with space.background_view() as view:
            page = view.all(SQL.past_versions, (index.ix, last, limits.MAINTENANCE_PAGE_ROWS))
        doomed = [
            (doc,)
            for doc, branch, begin, end in page
            if not readable_intervals([(begin, end)], retained.get(branch, [least]))
        ]
        if doomed:
            space.database.transact(partial(_delete, table=table_of(index.ix), docs=doomed))
            count += len(doomed)
            space.database.pauses.pause()
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return count
        last = page[-1][0]


def _delete(txn: Transaction, table: str, docs: list[tuple[int]]) -> None:
    txn.execute_many(SQL.delete_words.format(table=table), docs)
    txn.execute_many(SQL.delete_version, docs)


class TextCheck:
    """The comparison of one full-text index with the log."""

    def __init__(
        self, view: HistoryReader, index: Index, retained: dict[str, list[int]], least: int
    ) -> None:
        self._view = view
        self._index = index
        self._retained = retained
        self._least = least
        self._parents: dict[str, list[BranchLink]] = {}
        self._has_words = SQL.has_words.format(table=table_of(index.ix))

    def problems(self) -> Iterator[Problem]:
        """Yield the versions that are not what the log gives, and then those without an entity."""
        place = ("", "")
        while page := self._view.all(
            declaration.SQL.heads_page, (*place, limits.MAINTENANCE_PAGE_ROWS)
        ):
            for branch, entity, _ in page:
                yield from self._check(branch, entity)
            place = page[-1][:2]
        for branch, entity in self._view.rows(SQL.without_entity, (self._index.ix,)):
            yield self._problem("is not in the log", branch, entity)
        strays = SQL.stray_words.format(table=table_of(self._index.ix))
        for (doc,) in self._view.rows(strays, (self._index.ix,)):
            yield make_problem(
                f"index {self._index.name!r}: the words of row {doc} have no version",
                table_of(self._index.ix),
                {"rowid": doc},
            )

    def _check(self, branch: str, entity: str) -> Iterator[Problem]:
        if branch not in self._parents:
            self._parents[branch] = chain(self._view, branch, limits.INTEGER_MAX)[1:]
        build = TextBuild(self._index)
        build.add(EntityLog(self._parents[branch], branch, entity).read(self._view))
        rows = self._view.all(SQL.versions, (self._index.ix, branch, entity))
        stored = self._readable(branch, ((digest, (a, b)) for _, a, b, digest in rows))
        if stored != self._readable(branch, build.intervals()):
            yield self._problem("is not what the log gives", branch, entity)
            return
        texts = build.texts()
        for doc, _, _, digest in rows:
            if digest in texts and not self._is_found(doc, texts[digest]):
                yield self._problem("does not have the words of its document", branch, entity)

    def _readable(self, branch: str, versions: Iterable[Version]) -> list[Version]:
        retained = self._retained.get(branch, [self._least])
        return readable_versions(versions, retained, self._index.options.history)

    def _is_found(self, doc: int, texts: Texts) -> bool:
        words = list(dict.fromkeys(word for text in texts for word in tokens(text)))
        half = _COMPARED_WORDS // 2
        compared = words[:half] + words[half:][-half:]
        expression = " AND ".join(f'"{word}"' for word in compared)
        return not compared or bool(self._view.value(self._has_words, (expression, doc)))

    def _problem(self, wrong: str, branch: str, entity: str) -> Problem:
        return make_problem(
            f"index {self._index.name!r}: the text of {entity!r} on {branch!r} {wrong}",
            "index_text",
            {"ix": self._index.ix, "branch": branch, "id": entity},
        )
