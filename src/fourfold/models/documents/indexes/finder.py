"""Queries over the documents of a space: pages, counts and facets, by an index or by a scan.

A query reads one state: a branch at a seq. It takes candidates in order, from an index or from the
ids of all entities, reads their documents together, and compares these with the filter. A page ends
when it is full, or when the query has read as much as one page may; then `plan.complete` is False,
and the cursor continues there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fourfold.content.filters import Filter
from fourfold.errors import DeadlineExceeded, InvalidInput, LimitExceeded, Refused
from fourfold.limits import MIB
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import At, BranchLink, branch_named, chain, target_of
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration, keys
from fourfold.models.documents.indexes.declaration import IndexPath, resolve
from fourfold.models.documents.indexes.planner import (
    Access,
    IndexProbe,
    Order,
    TextProbe,
    plan,
    plan_text,
)
from fourfold.models.documents.indexes.text import iter_ids
from fourfold.models.documents.indexes.visible import EVERYTHING, Entry, VisibleEntries
from fourfold.models.documents.records import Document
from fourfold.tabular import Rows, show_record

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

FIND_LIMIT_MAX: Final = 1_000
"""Documents of one page."""
FIND_BYTES_MAX: Final = 16 * MIB
"""Size of the documents of one page; it has at least one."""
FIND_ROWS_MAX: Final = 20_000
"""Candidates that one page reads."""
FIND_SECONDS_MAX: Final = 2.0
"""Time after which a page ends before it is full."""
SORT_ROWS_MAX: Final = 20_000
"""Candidates that a query reads to sort them."""
COUNT_SECONDS_MAX: Final = 30.0
"""Time for a count or for facets."""
FACET_VALUES_MAX: Final = 100_000
"""Different values that facets count without an index."""
FEW_ROWS: Final = 500
"""Candidates that are sorted rather than found in order among others."""
_BATCH_ROWS: Final = 100
_SCAN_ROWS: Final = 250
_NOT_PINNED: Final = -1


class Match(msgspec.Struct, frozen=True):
    """A document that matches: its id, and the seq of its last change."""

    id: str
    document: Document
    seq: int


class FindPlan(msgspec.Struct, frozen=True):
    """Plan of a query: the index and the entries that it reads."""

    access: Access
    """"equality", "range", "order" or "text" by an index, or "scan" without one."""
    index: str | None = None
    """Name of the index."""
    ranges: int = 0
    """Ranges of keys of the index."""
    exact: bool = False
    """True if the index alone decides which documents match."""
    sorts: bool = False
    """True if all matches are read and sorted for each page."""
    building: tuple[str, ...] = ()
    """Indexes that cannot be used before they are built."""
    scanned: int = 0
    """Candidates that were read."""
    complete: bool = True
    """False if the page ended before it was full, because it had read enough."""


class FindPage(msgspec.Struct, frozen=True):
    """A page of matches. Pass `next` as `after` for the next one; None if there is none."""

    items: Rows[Match]
    next: str | None
    plan: FindPlan
    seq: int
    """The seq at which the documents were read."""

    def _repr_html_(self) -> str:
        return show_record(self)

    def __iter__(self) -> Iterator[Match]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Facet(msgspec.Struct, frozen=True):
    """A value, and the number of documents that have it."""

    value: Any
    count: int


class FindQuery(NamedTuple):
    """A filter, and the branch and seq at which it is evaluated."""

    where: Filter
    order: Order | None
    branch: str
    at: At
    scan: bool = True

    @property
    def digest(self) -> str:
        """Identifies the query in its cursors."""
        parts = (self.where.where, self.order, self.branch, str(self.at))
        return hashlib.sha256(trusted(parts).encode()).hexdigest()[:16]


class _FindCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Position at which a page starts."""

    query: str
    seq: int
    """Seq of the first page; -1 if the index has no history."""
    ix: int
    """Index of the first page; 0 without one."""
    key: str
    id: str

    def format(self) -> str:
        return base64.urlsafe_b64encode(trusted(self).encode()).decode().rstrip("=")

    @property
    def entry(self) -> Entry:
        return bytes.fromhex(self.key), self.id


def _parse_cursor(text: str, query: FindQuery) -> _FindCursor:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=_FindCursor)
        bytes.fromhex(cursor.key)
    except (TypeError, binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = _FindCursor("", 0, 0, "", "")
    if cursor.query != query.digest:
        raise InvalidInput(
            f"after: must be `next` of a page of this query, got {text!r:.80}",
            hint="Repeat the query without `after`, and then change nothing but `after`.",
        )
    return cursor


class _Candidate(NamedTuple):
    """A document that matches, and its place in the result."""

    key: bytes
    id: str
    document: Document
    seq: int

    @property
    def entry(self) -> Entry:
        return self.key, self.id

    def to_match(self) -> Match:
        return Match(self.id, self.document, self.seq)


class _Budget:
    """Limits of what one page may read."""

    def __init__(self, rows: int, seconds: float) -> None:
        self._rows = rows
        self._until = time.monotonic() + seconds
        self.scanned = 0

    @property
    def is_spent(self) -> bool:
        return self.scanned >= self._rows or time.monotonic() >= self._until


class _Execution:
    """A query on one state of a space."""

    def __init__(
        self, view: HistoryReader, query: FindQuery, cursor: _FindCursor | None = None
    ) -> None:
        self.query = query
        self._view = view
        branch_named(view, query.branch)
        at = query.at if cursor is None or cursor.seq == _NOT_PINNED else cursor.seq
        self.target = target_of(view, query.branch, at)
        self._links: Sequence[BranchLink] = chain(view, query.branch, self.target)
        is_now = at is None and not query.branch
        self._indexes = [
            index
            for index in declaration.load(view.snapshot)
            if index.options.history == "all" or is_now
        ]
        self.text: TextProbe | None = None
        self.probe = self._choose(cursor)
        self.is_ordered = query.order is None or (self.probe is not None and self.probe.ordered)
        self.position: Entry | None = None if cursor is None else cursor.entry
        """The last candidate that was read."""
        self.is_exhausted = False

    def _choose(self, cursor: _FindCursor | None) -> IndexProbe | None:
        """Return the index to use and its keys, or None to scan."""
        query = self.query
        usable = [index for index in self._indexes if index.is_complete]
        if cursor is not None:
            # All pages take the same way, or they would not continue each other.
            usable = [index for index in usable if index.ix == cursor.ix]
            if cursor.ix and not usable:
                raise InvalidInput(
                    "after: the index of this query no longer exists",
                    hint="Repeat the query without `after`.",
                )
        values = [index for index in usable if index.kind == "value"]
        probe, ordering = plan(values, query.where, query.order)
        if ordering is not None and (probe is None or not self._has_few(probe)):
            probe = ordering
        if probe is None:
            texts = [index for index in usable if index.kind == "text"]
            self.text = plan_text(texts, query.where)
        if probe is None and self.text is None and not query.scan:
            building = ", ".join(self._building)
            raise Refused(
                f"no index serves this query{f'; being built: {building}' if building else ''}",
                hint="Create an index (`fourfold space index create`), or allow a scan.",
            )
        return probe

    @property
    def _building(self) -> tuple[str, ...]:
        return tuple(index.name for index in self._indexes if not index.is_complete)

    def _has_few(self, probe: IndexProbe) -> bool:
        """Return True if sorting the candidates costs less than to find them in order."""
        entries = islice(self._entries(probe, None), FEW_ROWS)
        return sum(1 for _ in entries) < FEW_ROWS

    def plan(self, scanned: int = 0, *, complete: bool = True) -> FindPlan:
        """Return what the caller sees of the plan."""
        probe = self.probe
        used = probe or self.text
        access: Access = "scan" if self.text is None else "text"
        return FindPlan(
            access if probe is None else probe.access,
            None if used is None else used.declared.name,
            0 if probe is None else len(probe.ranges),
            probe is not None and probe.exact,
            not self.is_ordered,
            self._building,
            scanned,
            complete,
        )

    def cursor(self, entry: Entry) -> _FindCursor:
        """Return the cursor of a page that starts after an entry."""
        used = self.probe or self.text
        index = None if used is None else used.declared
        pinned = index is None or index.options.history == "all"
        return _FindCursor(
            self.query.digest,
            self.target if pinned else _NOT_PINNED,
            0 if index is None else index.ix,
            entry[0].hex(),
            entry[1],
        )

    def matches(self, budget: _Budget, batch_rows: int = _BATCH_ROWS) -> Iterator[_Candidate]:
        """Yield the documents that match, as they are found."""
        order, where, is_ordered = self.query.order, self.query.where.matches, self.is_ordered
        probe = self.probe if self.probe and self.probe.declared.is_multiple else None
        after = self.position if is_ordered else None
        entries = self._ids(after) if self.probe is None else self._entries(self.probe, after)
        while batch := list(islice(entries, batch_rows)):
            budget.scanned += len(batch)
            states = reader.states(self._view, self._links, [entity for _, entity in batch])
            for key, entity in batch:
                state = states[entity]
                document = None if state is None else state.document
                if state is None or document is None or not where(document):
                    continue
                if probe is not None and not _is_first(probe, document, key):
                    continue
                if not is_ordered:
                    assert order is not None
                    place = _order_key(document, order.path)
                    if place is None:
                        continue
                    key = place  # noqa: PLW2901 - the place in the result
                yield _Candidate(key, entity, document, state.seq)
            if is_ordered:
                # A page that ends within a batch is full, and continues after its last match.
                self.position = batch[-1]
            if budget.is_spent:
                return
        self.is_exhausted = True

    def _ids(self, after: Entry | None) -> Iterator[Entry]:
        last = "" if after is None else after[1]
        if self.text is not None:
            for entity in iter_ids(self._view, *self.text, self._links, last):
                yield b"", entity
            return
        while page := reader.live_ids(self._view, self._links, "", last, _SCAN_ROWS):
            for entity in page:
                yield b"", entity
            last = page[-1]

    def _entries(self, probe: IndexProbe, after: Entry | None) -> Iterator[Entry]:
        order = self.query.order
        descending = probe.ordered and order is not None and order.descending
        ranges = probe.ranges[::-1] if descending else probe.ranges
        entries = VisibleEntries(self._view, probe.declared, self._links)
        for keys_ in ranges:
            if after is None or (keys_.low <= after[0] if descending else after[0] < keys_.high):
                yield from entries.iter(keys_, after, descending=descending)

    def count(self) -> int | None:
        """Return the number of matches if the index alone decides; otherwise None."""
        if self.probe is None or not self.probe.exact:
            return None
        entries = VisibleEntries(self._view, self.probe.declared, self._links)
        return sum(map(entries.count, self.probe.ranges))

    def groups(self, path: IndexPath) -> Iterator[tuple[bytes, int]] | None:
        """Return the values at a path and their counts, if an index has them; otherwise None."""
        for index in self._indexes:
            if index.kind != "value" or not index.is_complete:
                continue
            if index.paths == (path,) and not self.query.where:
                return VisibleEntries(self._view, index, self._links).groups(EVERYTHING)
        return None


def _is_first(probe: IndexProbe, document: Document, key: bytes) -> bool:
    """Return True if a document has no entry before `key`: it is found there only."""
    own_keys = (
        own
        for own in probe.declared.keys(document)
        if any(keys_.low <= own < keys_.high for keys_ in probe.ranges)
    )
    return min(own_keys, default=None) == key


def _order_key(document: Document, path: IndexPath) -> bytes | None:
    for value in resolve(document, path):
        return keys.encode_part(value)
    return None


def matching_ids(view: HistoryReader, query: FindQuery) -> list[str]:
    """Return the ids of all documents that match.

    Raises:
        LimitExceeded: Too many documents would have to be read without an index.
    """
    execution = _Execution(view, query)
    budget = _Budget(SORT_ROWS_MAX, COUNT_SECONDS_MAX)
    ids = [candidate.id for candidate in execution.matches(budget)]
    if not execution.is_exhausted:
        raise LimitExceeded(
            f"where: more than {SORT_ROWS_MAX} documents would be compared",
            hint="Use a narrower filter, or create an index that serves it.",
        )
    return ids


def find(space: Space, query: FindQuery, limit: int, after: str | None) -> FindPage:
    """Return a page of the documents that match."""
    if type(limit) is not int or not 1 <= limit <= FIND_LIMIT_MAX:
        raise InvalidInput(f"limit must be from 1 to {FIND_LIMIT_MAX}, got {limit!r:.100}")
    cursor = None if after is None else _parse_cursor(after, query)
    with space.view() as view:
        execution = _Execution(view, query, cursor)
        if execution.is_ordered:
            return _page(execution, limit)
        return _sorted_page(execution, limit, None if cursor is None else cursor.entry)


def _page(execution: _Execution, limit: int) -> FindPage:
    budget = _Budget(FIND_ROWS_MAX, FIND_SECONDS_MAX)
    items: list[_Candidate] = []
    size = 0
    following: Entry | None = None
    for candidate in execution.matches(budget, min(limit + 1, _BATCH_ROWS)):
        if len(items) == limit or size >= FIND_BYTES_MAX:
            following = items[-1].entry
            break
        items.append(candidate)
        size += len(trusted(candidate.document))
    complete = following is not None or execution.is_exhausted
    if not complete:
        following = execution.position
    return _to_page(execution, items, following, execution.plan(budget.scanned, complete=complete))


def _sorted_page(execution: _Execution, limit: int, after: Entry | None) -> FindPage:
    """Return a page in an order that no index gives: all matches are read and sorted."""
    order = execution.query.order
    assert order is not None
    budget = _Budget(SORT_ROWS_MAX, COUNT_SECONDS_MAX)
    later = (
        candidate
        for candidate in execution.matches(budget)
        if after is None
        or (candidate.entry < after if order.descending else candidate.entry > after)
    )
    select = heapq.nlargest if order.descending else heapq.nsmallest
    items = select(limit + 1, later, key=lambda candidate: candidate.entry)
    if not execution.is_exhausted:
        raise LimitExceeded(
            f"order_by: more than {SORT_ROWS_MAX} documents would be sorted",
            hint="Create an index on the path of order_by.",
        )
    following = items[limit - 1].entry if len(items) > limit else None
    return _to_page(execution, items[:limit], following, execution.plan(budget.scanned))


def _to_page(
    execution: _Execution, items: list[_Candidate], following: Entry | None, used: FindPlan
) -> FindPage:
    return FindPage(
        Rows((candidate.to_match() for candidate in items), Match),
        None if following is None else execution.cursor(following).format(),
        used,
        execution.target,
    )


def explain(space: Space, query: FindQuery) -> FindPlan:
    """Return how a query would be answered now."""
    with space.view() as view:
        return _Execution(view, query).plan()


def count(space: Space, query: FindQuery) -> int:
    """Return the number of documents that match."""
    with space.view() as view:
        execution = _Execution(view, query)
        number = execution.count()
        target = execution.target
    if number is not None:
        return number
    return sum(1 for _ in _all_matches(space, query._replace(at=target)))


def facets(space: Space, query: FindQuery, path: IndexPath, limit: int) -> Rows[Facet]:
    """Return the most frequent values at a path, with the number of documents that have them."""
    if type(limit) is not int or not 1 <= limit <= FIND_LIMIT_MAX:
        raise InvalidInput(f"limit must be from 1 to {FIND_LIMIT_MAX}, got {limit!r:.100}")
    with space.view() as view:
        execution = _Execution(view, query)
        target = execution.target
        groups = execution.groups(path)
        top = None if groups is None else _most_frequent(groups, limit)
    if top is None:
        counts: dict[bytes, int] = {}
        for candidate in _all_matches(space, query._replace(at=target)):
            for key in declaration.parts(candidate.document, path):
                counts[key] = counts.get(key, 0) + 1
            if len(counts) > FACET_VALUES_MAX:
                raise LimitExceeded(
                    f"facets: more than {FACET_VALUES_MAX} different values",
                    hint="Restrict the documents with `where`, or create an index on the path.",
                )
        top = _most_frequent(iter(counts.items()), limit)
    return Rows((Facet(keys.decode_key(key)[0], number) for key, number in top), Facet)


def _most_frequent(groups: Iterator[tuple[bytes, int]], limit: int) -> list[tuple[bytes, int]]:
    return heapq.nsmallest(limit, groups, key=lambda group: (-group[1], group[0]))


def _all_matches(space: Space, query: FindQuery) -> Iterator[_Candidate]:
    """Yield every match of a query at a seq, in several read transactions."""
    until = time.monotonic() + COUNT_SECONDS_MAX
    cursor: _FindCursor | None = None
    while True:
        budget = _Budget(FIND_ROWS_MAX, FIND_SECONDS_MAX)
        with space.view() as view:
            execution = _Execution(view, query, cursor)
            yield from execution.matches(budget, _SCAN_ROWS)
        if execution.is_exhausted:
            return
        if time.monotonic() >= until:
            raise DeadlineExceeded(
                "the query takes too long", hint="Create an index that serves it."
            )
        assert execution.position is not None
        cursor = execution.cursor(execution.position)
