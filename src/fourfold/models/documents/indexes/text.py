"""Full-text indexes: the words of declared paths, at every seq and on every branch.

Each version of the texts of an entity is a row of an FTS5 table, and a row of `index_text` with the
seqs between which a branch had it. A search filters its hits by the seqs that its branch shows.

FTS5 stores `searchable` texts with the tokenizer `ascii`, so it finds what `TextQuery.matches`
finds. The texts themselves are not stored again: snippets come from the documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fourfold.content.text import TextQuery, searchable
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents.ancestry import BranchLink
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes.declaration import PATHS_MAX, Index, resolve
from fourfold.models.documents.indexes.entries import Interval, Snapshot
from fourfold.models.documents.records import Document

if TYPE_CHECKING:
    from fourfold.models.documents.indexes.maintenance import EntityBuild, EntityChange

SQL: Final = load_queries("fourfold.models.documents.indexes", "text.sql")
SEPARATOR: Final = " \ue000 "
"""Between the texts of a path with `*`: a word that no query has, so no phrase spans two texts."""
Texts = tuple[str, ...]
"""The searchable text of each path; empty if the document has none."""


def table_of(ix: int) -> str:
    """Return the name of the FTS5 table of an index."""
    return f"index_text_{ix:d}"


def texts_of(index: Index, document: Document | None) -> Texts:
    """Return the texts of a document, as its version stores them."""
    if document is None:
        return ()
    texts = tuple(
        SEPARATOR.join(
            searchable(value) for value in resolve(document, path) if type(value) is str and value
        )
        for path in index.paths
    )
    return texts if any(texts) else ()


def digest_of(texts: Texts) -> bytes:
    """Return a hash of the texts of a version."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).digest()


class WordIndex:
    """Indexes of words."""

    def create(self, txn: Transaction, ix: int) -> None:
        """Create the table of an index, if there is none."""
        txn.execute(SQL.create.format(table=table_of(ix)))

    def write(
        self, txn: Transaction, indexes: Sequence[Index], changes: Sequence[EntityChange]
    ) -> None:
        """Apply the changes of a commit."""
        for index in indexes:
            self._write(txn, index, changes)

    def _write(self, txn: Transaction, index: Index, changes: Sequence[EntityChange]) -> None:
        if index.state == "building":
            # After a restore there is a declaration, and nothing else.
            self.create(txn, index.ix)
        versions = _Versions(txn, index)
        for change in changes:
            before, after = texts_of(index, change.old), texts_of(index, change.new)
            if before == after:
                continue
            if before:
                versions.end(change.branch, change.entity, change.seq)
            if after:
                versions.add(change.branch, change.entity, after, (change.seq, None))

    def build(self, index: Index) -> EntityBuild:
        """Return a build of the versions of one entity."""
        return TextBuild(index)

    def delete_rows(self, txn: Transaction, ix: int, rows_max: int) -> int:
        """Delete rows of a dropped index; return how many."""
        txn.execute(SQL.drop.format(table=table_of(ix)))
        txn.execute(SQL.delete_versions, (ix, rows_max))
        return txn.changes


class _Versions:
    """Writes to the versions of one index in a transaction."""

    def __init__(self, txn: Transaction, index: Index) -> None:
        self._txn = txn
        self._index = index
        table = table_of(index.ix)
        self._insert_words = SQL.insert_words.format(table=table)
        self._delete_words = SQL.delete_words.format(table=table)
        self._doc: int | None = None

    def add(self, branch: str, entity: str, texts: Texts, interval: Interval) -> None:
        """Add a version."""
        if self._doc is None:
            self._doc = self._txn.value(SQL.next_doc)
        doc, self._doc = self._doc, self._doc + 1
        columns = (*texts, *[None] * (PATHS_MAX - len(texts)))
        self._txn.execute(self._insert_words, (doc, *columns))
        row = (doc, self._index.ix, branch, entity, *interval, digest_of(texts))
        self._txn.execute(SQL.insert_version, row)

    def end(self, branch: str, entity: str, seq: int) -> None:
        """End the version that holds, if there is one; without history, delete it."""
        place = (self._index.ix, branch, entity)
        if self._index.options.history == "all":
            self._txn.execute(SQL.end_version, (*place, seq))
        else:
            self.delete(self._txn.all(SQL.live_docs, place))

    def delete(self, docs: Iterable[tuple[int]]) -> None:
        """Delete versions and their words."""
        rows = list(docs)
        self._txn.execute_many(self._delete_words, rows)
        self._txn.execute_many(SQL.delete_version, rows)


class TextBuild:
    """The versions of one entity of a branch, from all of its states."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._versions: list[tuple[Texts, int, int | None]] = []

    def add(self, states: Iterable[Snapshot]) -> None:
        """Add states that follow those before."""
        for seq, document in states:
            texts = texts_of(self._index, document)
            last = self._versions[-1] if self._versions else None
            if last is not None and last[2] is None:
                if last[0] == texts:
                    continue
                self._versions[-1] = (last[0], last[1], seq)
                if self._index.options.history == "now":
                    del self._versions[-1]
            if texts:
                self._versions.append((texts, seq, None))

    def store(self, txn: Transaction, branch: str, entity: str) -> None:
        """Store the versions in place of those that commits have stored since the declaration."""
        WordIndex().create(txn, self._index.ix)
        versions = _Versions(txn, self._index)
        versions.delete(txn.all(SQL.entity_docs, (self._index.ix, branch, entity)))
        for texts, begin, end in self._versions:
            versions.add(branch, entity, texts, (begin, end))

    def intervals(self) -> Iterator[tuple[bytes, Interval]]:
        """Yield the digest of each version, and when it held."""
        for texts, begin, end in self._versions:
            yield digest_of(texts), (begin, end)

    def texts(self) -> dict[bytes, Texts]:
        """Return the texts of all versions, by their digests."""
        return {digest_of(texts): texts for texts, *_ in self._versions}


def match_expression(query: TextQuery, columns: Sequence[int] | None) -> str:
    """Return a query for some columns of an index, or for all."""
    expression = query.match_expression()
    if columns is None:
        return expression
    return f"{{{' '.join(f'c{number}' for number in columns)}}} : ({expression})"


def iter_ids(
    view: HistoryReader, index: Index, expression: str, links: Sequence[BranchLink], after: str
) -> Iterator[str]:
    """Yield the ids of the entities that match after one of them, sorted."""
    hits = SQL.hits.format(table=table_of(index.ix), score="0", allowed="")
    for (entity,) in view.rows(SQL.ids.format(hits=hits), (expression, trusted(links), after)):
        yield entity
