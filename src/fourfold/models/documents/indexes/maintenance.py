"""Upkeep of indexes in the transaction of a commit.

Every kind of index receives the same changes: an entity of a branch had one document before the
commit and has another after it. A branch has entries only for what it wrote itself, so the first
change of an inherited entity has no document before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from fourfold.errors import UniqueViolation
from fourfold.kernel import Transaction
from fourfold.limits import DOCUMENT_BYTES_MAX, INTEGER_MAX
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import BranchLink, chain
from fourfold.models.documents.cache import CacheEntry, Key
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import SQL, Index
from fourfold.models.documents.indexes.entries import EntityLog, EntryBuilder, Snapshot
from fourfold.models.documents.indexes.keys import decode_key, has_missing
from fourfold.models.documents.indexes.text import WordIndex
from fourfold.models.documents.indexes.vector import VectorIndex
from fourfold.models.documents.indexes.visible import VisibleEntries, one_key
from fourfold.models.documents.records import Document
from fourfold.models.documents.request import RequestStep

_SHOWN_CHARS: Final = 100


class EntityChange(NamedTuple):
    """One entity of a branch, before and after a commit; None where it does not exist."""

    entity: str
    branch: str
    seq: int
    old: Document | None
    new: Document | None


class IndexKind(Protocol):
    """A kind of index. Its rows are derived: they can be deleted and built again."""

    def create(self, txn: Transaction, ix: int) -> None:
        """Create what an index needs before its first row."""

    def write(
        self, txn: Transaction, indexes: Sequence[Index], changes: Sequence[EntityChange]
    ) -> None:
        """Apply the changes of a commit to all indexes of this kind.

        An index may not be built so far.
        """

    def build(self, index: Index) -> EntityBuild:
        """Return a build of the entries of one entity."""

    def delete_rows(self, txn: Transaction, ix: int, rows_max: int) -> int:
        """Delete rows of a dropped index; return how many."""


class EntityBuild(Protocol):
    """The entries of one entity of a branch, from all of its states."""

    def add(self, states: Iterable[Snapshot]) -> None:
        """Add states that follow those before."""

    def store(self, txn: Transaction, branch: str, entity: str) -> None:
        """Store the entries; some of them may be there already."""


class _ValueBuild(EntryBuilder):
    def store(self, txn: Transaction, branch: str, entity: str) -> None:
        """Store the entries; commits since the declaration have stored some of them."""
        ix = self._index.ix
        live = [(ix, branch, key, entity, begin) for key, begin in self.live.items()]
        txn.execute_many(SQL.store_live, live)
        if self._index.options.history == "all":
            past = [(ix, branch, key, entity, *ends) for key, *ends in self.past]
            txn.execute_many(SQL.store_past, past)


class ValueIndex:
    """Indexes of scalar values, for equality, ranges and order."""

    def create(self, txn: Transaction, ix: int) -> None:
        """Do nothing: all indexes of values share their tables."""

    def write(
        self, txn: Transaction, indexes: Sequence[Index], changes: Sequence[EntityChange]
    ) -> None:
        """Apply the changes of a commit."""
        ended: list[tuple[int, str, bytes, str]] = []
        stored: list[tuple[int, str, bytes, str, int]] = []
        begun: list[tuple[int, str, bytes, str, int]] = []
        for index in indexes:
            ix, keeps_past = index.ix, index.options.history == "all"
            for entity, branch, seq, old, new in changes:
                after = index.keys(new)
                if old is not None:
                    before = index.keys(old)
                    if before == after:
                        continue
                    gone = [(ix, branch, key, entity) for key in before - after]
                    ended += gone
                    if keeps_past:
                        stored += [(*place, seq) for place in gone]
                    after -= before
                begun += [(ix, branch, key, entity, seq) for key in after]
        for sql, rows in (
            (SQL.end_live, stored),
            (SQL.delete_live, ended),
            (SQL.insert_live, begun),
        ):
            if rows:
                txn.execute_many(sql, rows)

    def build(self, index: Index) -> EntityBuild:
        """Return a build of the entries of one entity."""
        return _ValueBuild(index)

    def delete_rows(self, txn: Transaction, ix: int, rows_max: int) -> int:
        """Delete rows of a dropped index; return how many."""
        txn.execute(SQL.delete_live_rows, (ix, rows_max))
        count = txn.changes
        if count < rows_max:
            txn.execute(SQL.delete_past_rows, (ix, rows_max - count))
            count += txn.changes
        return count


KINDS: Final[Mapping[str, IndexKind]] = {
    "value": ValueIndex(),
    "text": WordIndex(),
    "vector": VectorIndex(),
}
"""Kinds of indexes, by the name that a declaration stores."""


def changes_of(
    view: HistoryReader,
    steps: Sequence[RequestStep],
    touched: Mapping[Key, CacheEntry],
    known: Callable[[Key], CacheEntry | None],
    seq: int,
) -> list[EntityChange]:
    """Return the changes of a commit, before its rows are in the log.

    Args:
        steps: The operations of the commit.
        touched: The entities after the commit; all of one branch.
        known: Returns the state of an entity before the commit, if it is in memory.
        seq: The seq of the commit.
    """
    if not touched:
        return []
    branch = next(iter(touched))[0]
    links = chain(view, branch, seq - 1)
    # What the branch wrote itself came after its fork.
    fork = links[1].cap if len(links) > 1 else -1
    before: dict[str, Document | None] = {}
    missing: list[str] = []
    for key in touched:
        entry = known(key)
        if entry is None:
            missing.append(key[1])
        elif entry.seq > fork:
            before[key[1]] = entry.opened()
    if missing:
        before |= _stored_documents(view, links, missing)
    # A document that was set is not decoded again.
    documents = {step.id: step.value for step in steps if step.op == "set"}
    return [
        EntityChange(
            entity,
            branch,
            seq,
            before.get(entity),
            documents[entity] if entry.op == "set" else entry.opened(),
        )
        for (_, entity), entry in touched.items()
    ]


def _stored_documents(
    view: HistoryReader, links: Sequence[BranchLink], entities: list[str]
) -> dict[str, Document | None]:
    """Return the documents of entities that the branch itself wrote; most are new."""
    branch = links[0].branch
    if len(entities) == 1:
        if view.value(SQL.head_seq, (branch, entities[0])) is None:
            return {}
        entry = reader.entry(view, links, entities[0])
        return {} if entry is None else {entities[0]: entry.document}
    own = [entity for (entity,) in view.rows(SQL.own_heads, (branch, trusted(entities)))]
    states = reader.states(view, links, own) if own else {}
    return {entity: state.document for entity, state in states.items() if state is not None}


def write(
    txn: Transaction,
    view: HistoryReader,
    indexes: Sequence[Index],
    changes: Sequence[EntityChange],
    *,
    enforce: bool,
) -> None:
    """Update the indexes after a commit whose rows are in the log.

    With `enforce`, values that another entity has in a unique index are refused.

    Raises:
        UniqueViolation: Another entity of the branch has a value that must be unique.
    """
    if not changes:
        return
    for name, kind in KINDS.items():
        mine = [index for index in indexes if index.kind == name]
        if mine:
            kind.write(txn, mine, changes)
    if enforce:
        for index in indexes:
            if index.options.unique and index.state != "failed":
                _check_unique(view, index, changes)


def advance_entities(
    txn: Transaction,
    view: HistoryReader,
    entities: Sequence[tuple[str, str]],
    store_head: Callable[[tuple[str, str]], object],
) -> None:
    """Update heads and entries of indexes after rows were added to the log.

    Args:
        entities: Branch and id of each entity with new rows; the heads are those before them.
        store_head: Stores the head of an entity.
    """
    indexes = [index for index in declaration.load(txn) if index.state != "failed"]
    for branch, entity in entities:
        known = view.value(SQL.head_seq, (branch, entity))
        store_head((branch, entity))
        if not indexes:
            continue
        log = EntityLog(chain(view, branch, INTEGER_MAX)[1:], branch, entity)
        before = None if known is None else log.skip(view, known)
        for seq, document in log.read(view):
            change = EntityChange(entity, branch, seq, before, document)
            write(txn, view, indexes, [change], enforce=False)
            before = document


def _check_unique(view: HistoryReader, index: Index, changes: Sequence[EntityChange]) -> None:
    links = chain(view, changes[0].branch, changes[0].seq)
    for change in changes:
        for key in index.keys(change.new) - index.keys(change.old):
            other = other_with_key(view, index, links, key, change.entity, document=change.new)
            if other is not None:
                raise unique_violation(index, change.branch, key, change.entity, other)


def other_with_key(
    view: HistoryReader,
    index: Index,
    links: Sequence[BranchLink],
    key: bytes,
    entity: str,
    *,
    document: Document | None = None,
) -> str | None:
    """Return another entity with the values of a key, or None.

    A key may be shared by different long strings, so documents are compared. `document` is that of
    `entity`, by default the stored one.
    """
    if has_missing(key):
        # As in SQL: nothing does not equal nothing.
        return None
    values: set[bytes] | None = None
    for _, other in VisibleEntries(view, index, links).iter(one_key(key)):
        if other == entity:
            continue
        if values is None:
            if document is None:
                entry = reader.entry(view, links, entity)
                document = None if entry is None else entry.document
            values = index.keys(document, DOCUMENT_BYTES_MAX)
        entry = reader.entry(view, links, other)
        if entry is not None and values & index.keys(entry.document, DOCUMENT_BYTES_MAX):
            return other
    return None


def unique_violation(
    index: Index, branch: str, key: bytes, entity: str, other: str
) -> UniqueViolation:
    """Return the error for two entities with the values of a key."""
    values = decode_key(key)
    shown = values[0] if len(values) == 1 else values
    return UniqueViolation(
        f"index {index.name!r}: entity {other!r:.100} already has the value "
        f"{shown!r:.{_SHOWN_CHARS}} of {entity!r:.100}",
        details={"index": index.name, "entity": entity, "other": other, "branch": branch},
    )
