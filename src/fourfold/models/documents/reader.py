"""Reads: the state of an entity on a branch at a point, replayed from the nearest full document.

The base of a replay is the newest of snapshot, set and delete at or before the target; what lies
before it is never touched, so the cost of a read depends on the patches since then and not on the
length of the history. On a child branch the base of the first patch is what the parent showed at
the fork.

Reading many entities at one point, in a number of statements that does not depend on how many.

Branch by branch along the chain, three queries run for all entities at once: the newest row of
each; where that is a patch, what is there since the last whole document; and, where that is a
snapshot, what it says. An entity whose patches on a child have no whole document below them stays
open, and takes its base from the next branch of the chain. The result is what single reads of the
same chain give.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.ancestry import BranchLink, last_seq
from fourfold.models.documents.cache import CacheEntry
from fourfold.models.documents.encoding import PATCH_GROWTH, bytes_at_most, decode, stored, trusted
from fourfold.models.documents.gc.horizon import horizon, truncated
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Document, LogEntry, Revision, State

IDS_STEP: Final = 64
"""Ids that are listed between two chances to pause."""
IDS_EARLY_ROWS: Final = 10_000
"""With fewer revisions up to a point, a listing scans these instead of the heads."""

_EMPTY_BYTES = 2
_FEW_ROWS = 64
Row = tuple[Any, ...]


def entry(
    view: HistoryReader, links: Sequence[BranchLink], entity: str, *, derived: bool = True
) -> CacheEntry | None:
    """Return the state that the chain shows for `entity`; None if it was never written.

    Without `derived`, snapshots are ignored and only the log is read.
    """
    for depth, link in enumerate(links):
        # Newest first, and read no further than a whole document. Seqs begin at 1.
        rows = view.rows(view.sql.revisions_backwards, (link.branch, entity, 0, link.cap))
        for seq, _, op, data in rows:
            if op == "set":
                document = _document(data, entity, seq)
                return CacheEntry(seq, "set", document, len(data), 0, 0, bytes_at_most(data))
            if op == "delete":
                return CacheEntry(seq, "delete", None, _EMPTY_BYTES, 0, 0, _EMPTY_BYTES)
            return _replayed(view, links[depth:], entity, seq, data, rows, derived=derived)
    return None


def _replayed(  # noqa: PLR0917
    view: HistoryReader,
    links: Sequence[BranchLink],
    entity: str,
    seq: int,
    newest: str,
    earlier: Iterator[Row],
    *,
    derived: bool,
) -> CacheEntry:
    """Return the state after a patch with the text `newest`."""
    # What a collection left as the beginning of the log is not derived.
    sought = view.sql.newest_snapshot if derived else view.sql.newest_base
    whole = view.one(sought, (links[0].branch, entity, seq))
    since = whole[0] if whole else 0
    # A snapshot holds all operations of its commit.
    texts: list[str] = [newest] if seq > since else []
    base: Document | None = None
    base_bytes = bytes_max = _EMPTY_BYTES
    for row_seq, _, op, data in earlier:
        if row_seq <= since:
            break
        if op == "patch":
            texts.append(data)
            continue
        base = {}
        if op == "set":
            base = _document(data, entity, row_seq)
            base_bytes, bytes_max = len(data), bytes_at_most(data)
        break
    if base is None:
        if whole:
            base = _document(whole[1], entity, since)
            base_bytes, bytes_max = len(whole[1]), bytes_at_most(whole[1])
        else:
            inherited = entry(view, links[1:], entity, derived=derived)
            if inherited is not None and inherited.document is not None:
                base, base_bytes = inherited.document, inherited.base_bytes + inherited.patch_bytes
                bytes_max = inherited.bytes_max
    try:
        patches = [decode(text) for text in reversed(texts)]
        document = fold.replay(base or {}, patches)
    except ValueError as error:
        raise CorruptData(
            f"the stored patches of {entity!r} up to seq {seq} cannot be applied: {error}"
        ) from error
    bytes_max += PATCH_GROWTH * sum(map(bytes_at_most, texts))
    patch_bytes = sum(map(len, texts))
    return CacheEntry(seq, "patch", document, base_bytes, len(texts), patch_bytes, bytes_max)


def revisions(
    view: HistoryReader, links: Sequence[BranchLink], entity: str, after: int, limit: int
) -> Iterator[Revision]:
    """Yield every revision of `entity` that the chain shows, oldest first."""
    _check_page(after, limit)
    left = limit
    below = 0
    for link in reversed(links):
        lost = view.value(
            view.sql.lost_revision, (link.branch, entity, max(after, below), link.cap)
        )
        if lost is not None and left:
            raise truncated(
                f"the revisions of {entity!r} up to seq {lost} were given up",
                horizon(view),
                link.branch,
                lost,
            )
        for row in view.rows(
            view.sql.revisions_of_entity, (link.branch, entity, max(after, below), link.cap)
        ):
            if not left:
                return
            left -= 1
            yield revision(row)
        below = link.cap


def revision(row: Row) -> Revision:
    """Return the revision of a row of the log."""
    branch, entity, seq, op_index, op, data = row
    return Revision(
        branch,
        entity,
        seq,
        op_index,
        op,
        None if data is None else stored(data),
    )


def log(view: HistoryReader, after: int, until: int, limit: int) -> list[LogEntry]:
    """Return the commits after one seq and until another, with their operations."""
    _check_page(after, limit)
    if type(until) is not int:
        raise InvalidInput(f"until {until!r:.100} is not a seq")
    return [
        LogEntry(row[0], row[1], row[2], row[3], row[4], stored(row[5]), stored(row[6]))
        for row in view.all(view.sql.commits, (after, until, limit))
    ]


def live_ids(
    view: HistoryReader,
    links: Sequence[BranchLink],
    prefix: str,
    after: str,
    limit: int | None,
    *,
    end_step: Callable[[], None] = lambda: None,
) -> list[str]:
    """Return a page of the entities that exist (written, and not deleted) for the chain, sorted.

    Args:
        end_step: Called after every few ids; it may pause, so that other threads can write.
    """
    _check_page(0, 0 if limit is None else limit)
    for name, text in (("prefix", prefix), ("after", after)):
        if not isinstance(text, str):
            raise InvalidInput(f"{name} must be a string, got {text!r:.100}")
    alive: list[str] = []
    last = after
    # Of the words on an entity that of the nearest branch comes first, and counts.
    first, newest = max(prefix, after), last_seq(view)
    words = (_last_words(view, depth, link, first, newest) for depth, link in enumerate(links))
    for entity, _, op in heapq.merge(*words):
        if len(alive) == limit or not entity.startswith(prefix):
            break
        if entity != last and op != "delete":
            alive.append(entity)
        if not len(alive) % IDS_STEP:
            end_step()
        last = entity
    return alive


def _last_words(
    view: HistoryReader, depth: int, link: BranchLink, first: str, newest: int
) -> Iterator[tuple[str, int, str]]:
    """Yield the last operation on each entity of a link from the id `first` on, as it is read."""
    early = link.cap < newest and _wrote_little(view, link, first)
    query = view.sql.early_words if early else view.sql.last_words
    for entity, op in view.rows(query, (link.branch, link.cap, first)):
        yield entity, depth, op


def _wrote_little(view: HistoryReader, link: BranchLink, first: str) -> bool:
    """Return True if a link shows few revisions and many entities have come since."""
    rows = _FEW_ROWS
    while rows <= IDS_EARLY_ROWS:
        # In turn, so that finding out costs little more than the shorter of both.
        if view.value(view.sql.count_heads, (link.branch, first, rows)) < rows:
            return False
        if view.value(view.sql.count_written, (link.branch, link.cap, rows)) < rows:
            return True
        rows *= 4
    return False


def _check_page(after: int, limit: int) -> None:
    for name, number in (("after", after), ("limit", limit)):
        if type(number) is not int or not 0 <= number < 2**63:
            raise InvalidInput(f"{name} {number!r:.100} is not a whole number from 0 on")


def _document(text: str, entity: str, seq: int) -> Document:
    try:
        document = decode(text)
    except ValueError as error:
        raise CorruptData(
            f"the stored state of {entity!r} at seq {seq} cannot be read: {error}"
        ) from error
    if not isinstance(document, dict):
        raise CorruptData(f"the stored state of {entity!r} at seq {seq} is not a document")
    return document


Rows = list[fold.Row]


def states(
    view: HistoryReader, links: Sequence[BranchLink], entities: Iterable[str]
) -> dict[str, State | None]:
    """Return the state of each entity in the chain; None for one that was never written."""
    result: dict[str, State | None] = dict.fromkeys(entities)
    unsettled: dict[str, Rows] = {entity: [] for entity in result}
    for link in links:
        if not unsettled:
            break
        for entity, state in _on_branch(view, link, unsettled).items():
            result[entity] = state
            del unsettled[entity]
    for entity, rows in unsettled.items():
        result[entity] = fold.fold(None, rows)
    return result


def _on_branch(
    view: HistoryReader, link: BranchLink, unsettled: dict[str, Rows]
) -> dict[str, State]:
    """Return the entities that one branch resolves.

    The patches of the others are kept for its parents.
    """
    settled: dict[str, State] = {}
    patched: list[str] = []
    for entity, row in _newest_rows(view, link, unsettled):
        if row[1] == "patch":
            patched.append(entity)
        else:
            settled[entity] = _folded(row, unsettled[entity])
    if patched:
        settled |= _replay(view, link, patched, unsettled)
    return settled


def _newest_rows(
    view: HistoryReader, link: BranchLink, entities: Iterable[str]
) -> Iterator[tuple[str, fold.Row]]:
    """Yield the newest row of each entity that a branch wrote; a patch without its text.

    Most documents are read as they were set: that needs no replay.
    """
    rows = view.all(view.sql.newest_rows, (link.branch, link.cap, trusted(list(entities))))
    for (entity, seq, op, _), document in zip(rows, _values(rows), strict=True):
        yield entity, (seq, op, document)


def _replay(
    view: HistoryReader, link: BranchLink, patched: Iterable[str], unsettled: dict[str, Rows]
) -> dict[str, State]:
    """Return the entities that one branch resolves, of those whose newest row is a patch."""
    settled: dict[str, State] = {}
    resting: list[tuple[str, int, Rows]] = []
    for entity, since, rows in _replays(view, link, patched):
        whole = _last_whole(rows)
        if whole is not None:
            # Earlier operations of the same commit came along; what they built on did not.
            settled[entity] = _folded(rows[whole], rows[whole + 1 :] + unsettled[entity])
        elif since:
            resting.append((entity, since, rows))
        else:
            unsettled[entity] = rows + unsettled[entity]
    if resting:
        documents = _snapshots(view, link.branch, resting)
        for entity, since, rows in resting:
            # A snapshot holds all operations of its commit, which came along for their seq.
            later = [row for row in rows if row[0] > since] + unsettled[entity]
            base = State(documents[entity], "patch", since)
            settled[entity] = fold.patched(base, later)
    return settled


def _replays(
    view: HistoryReader, link: BranchLink, entities: Iterable[str]
) -> Iterator[tuple[str, int, Rows]]:
    """Yield the entities of a branch: the seq of the snapshot, and the rows after it.

    The rows start at a later full document, if there is one.
    """
    parameters = (link.branch, link.cap, trusted(list(entities)))
    replay_rows = [row for row in view.all(view.sql.replays, parameters) if row[2] is not None]
    for (entity, since, _), (count, *rows) in zip(replay_rows, _values(replay_rows), strict=True):
        if count != len(rows) or 3 * count != sum(map(len, rows)):
            raise CorruptData(f"a stored text of {entity!r} is more than one value")
        yield entity, since, rows


def _last_whole(rows: Rows) -> int | None:
    """Return the index of the last row that is not a patch."""
    for at in range(len(rows) - 1, -1, -1):
        if rows[at][1] != "patch":
            return at
    return None


def _snapshots(
    view: HistoryReader, branch: str, resting: Iterable[tuple[str, int, Rows]]
) -> dict[str, Document]:
    pairs = trusted([(entity, since) for entity, since, _ in resting])
    rows = view.all(view.sql.snapshots_at, (branch, pairs))
    return {row[0]: document for row, document in zip(rows, _values(rows), strict=True)}


def _values(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the values of the texts at the end of each row, parsed as one text to save time."""
    texts = ",".join([row[-1] for row in rows])
    values: list[Any] = stored(f"[{texts}]")
    if len(values) != len(rows):
        # A damaged text can look like two.
        return [stored(row[-1]) for row in rows]
    return values


def _folded(whole: fold.Row, patches: Rows) -> State:
    """Return the state after a whole document and the patches that follow it."""
    seq, op, document = whole
    if op == "set" and type(document) is dict:
        return fold.patched(State(document, "set", seq), patches)
    base = fold.fold(None, (whole,))
    assert base is not None
    return fold.patched(base, patches)
