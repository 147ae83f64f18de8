"""Reading: the state of an entity on a branch at a point, by replay from the nearest whole
document.

The base of a replay is the newest of snapshot, set and delete at or before the target; what lies
before it is never touched, so the cost of a read depends on the patches since then and not on the
length of the history. On a child branch the base of the first patch is what the parent showed at
the fork.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.cache import Entry
from fourfold.models.documents.chain import Link, last_seq
from fourfold.models.documents.encoding import PATCH_GROWTH, bytes_at_most, decode, stored
from fourfold.models.documents.gc.horizon import horizon, truncated
from fourfold.models.documents.history import View
from fourfold.models.documents.records import Document, LogEntry, Revision

_EMPTY_BYTES = 2
_FEW_ROWS = 64
Row = tuple[Any, ...]


def entry(view: View, links: Sequence[Link], entity: str, *, derived: bool = True) -> Entry | None:
    """The state that the chain shows for `entity`; None when it was never written.

    Without `derived` snapshots are passed over, and the log alone speaks.
    """
    for depth, link in enumerate(links):
        # Newest first, and read no further than a whole document. Seqs begin at 1.
        rows = view.rows(view.sql.revisions_backwards, (link.branch, entity, 0, link.cap))
        for seq, _, op, data in rows:
            if op == "set":
                document = _document(data, entity, seq)
                return Entry(seq, "set", document, len(data), 0, 0, bytes_at_most(data))
            if op == "delete":
                return Entry(seq, "delete", None, _EMPTY_BYTES, 0, 0, _EMPTY_BYTES)
            return _replayed(view, links[depth:], entity, seq, data, rows, derived=derived)
    return None


def _replayed(  # noqa: PLR0917
    view: View,
    links: Sequence[Link],
    entity: str,
    seq: int,
    newest: str,
    earlier: Iterator[Row],
    *,
    derived: bool,
) -> Entry:
    """The state after a patch, the text of which is `newest`."""
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
    return Entry(seq, "patch", document, base_bytes, len(texts), patch_bytes, bytes_max)


def revisions(
    view: View, links: Sequence[Link], entity: str, after: int, limit: int
) -> Iterator[Revision]:
    """Every revision of `entity` that the chain shows, oldest first."""
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
    branch, entity, seq, op_index, op, data = row
    return Revision(
        branch,
        entity,
        seq,
        op_index,
        op,
        None if data is None else stored(data),
    )


def log(view: View, after: int, until: int, limit: int) -> list[LogEntry]:
    _check_page(after, limit)
    if type(until) is not int:
        raise InvalidInput(f"until {until!r:.100} is not a seq")
    return [
        LogEntry(row[0], row[1], row[2], row[3], row[4], stored(row[5]), stored(row[6]))
        for row in view.all(view.sql.commits, (after, until, limit))
    ]


def live_ids(
    view: View, links: Sequence[Link], prefix: str, after: str, limit: int | None
) -> list[str]:
    """Return a page of the entities that exist (written, and not deleted) for the chain, sorted."""
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
        last = entity
    return alive


def _last_words(
    view: View, depth: int, link: Link, first: str, newest: int
) -> Iterator[tuple[str, int, str]]:
    """Yield the last operation on each entity of a link from the id `first` on, as it is read."""
    early = link.cap < newest and _wrote_little(view, link, first)
    query = view.sql.early_words if early else view.sql.last_words
    for entity, op in view.rows(query, (link.branch, link.cap, first)):
        yield entity, depth, op


def _wrote_little(view: View, link: Link, first: str) -> bool:
    """Return True if a link shows few revisions and many entities have come since."""
    rows = _FEW_ROWS
    while rows <= limits.IDS_EARLY_ROWS:
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
