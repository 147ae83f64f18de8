"""Search over the documents of a space: by words, with snippets, or by the nearest vectors."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec

from fourfold.content.text import TextQuery, parse_text_query
from fourfold.errors import Busy, InvalidInput, NotFound, Refused
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import At, BranchLink, branch_named, chain, target_of
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import Index, resolve
from fourfold.models.documents.indexes.finder import FIND_BYTES_MAX, FIND_LIMIT_MAX
from fourfold.models.documents.indexes.text import SQL, match_expression, table_of
from fourfold.models.documents.indexes.vector import check_vector, nearest
from fourfold.models.documents.records import Document, State
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

SNIPPETS_MAX: Final = 3
"""Snippets of one hit."""
SNIPPET_SOURCE_CHARS: Final = 65_536
"""Beginning of a text in which matches are highlighted."""

_SLICE_ROWS: Final = 32
"""Documents that are read at once: they may be large, and a page ends by its size too."""
_Row = tuple[Any, ...]
"""Id, negative score and total of a hit."""

_HINTS: Final = {
    "text": "Create one with `space.indexes.create(name, paths, kind='text')`, or use `$text` "
    "in `find`, which reads every document without one.",
    "vector": "Create one with `space.indexes.create(name, path, kind='vector')`.",
}
SearchOrder = Literal["score", "newest"]
_ORDERS: Final = {"score": SQL.by_score, "newest": SQL.by_age}


class TextSnippet(msgspec.Struct, frozen=True):
    """A part of a text with matches. `highlights` are their starts and ends in `text`."""

    path: str
    text: str
    highlights: tuple[tuple[int, int], ...]


class SearchHit(msgspec.Struct, frozen=True):
    """A document with the words of a query, or with a vector near that of a query."""

    id: str
    document: Document
    seq: int
    """Seq of the last change of the document."""
    score: float
    """Relevance by BM25, or the cosine of two vectors; higher is better."""
    snippets: tuple[TextSnippet, ...]
    """Parts of the texts with matches; none for vectors."""


class SearchPage(msgspec.Struct, frozen=True):
    """A page of hits. Pass `next` as `after` for the next one; None if there is none."""

    items: Rows[SearchHit]
    next: str | None
    total: int
    """Documents that match, on all pages."""
    index: str
    """Name of the index."""
    seq: int
    """The seq at which the documents were read."""

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class DocumentSearch(NamedTuple):
    """Words to search for, and the branch and seq at which they are searched."""

    text: TextQuery | None
    vector: bytes | None
    """One of them: the words, or a vector as it is stored."""
    index_name: str | None
    paths: tuple[str, ...] | None
    order: SearchOrder
    branch: str
    at: At

    @property
    def digest(self) -> str:
        """Identifies the query in its cursors."""
        texts = () if self.text is None else self.text.parts
        words = [(part.tokens, part.prefix, part.excluded) for part in texts]
        vector = None if self.vector is None else self.vector.hex()
        parts = (words, vector, self.index_name, self.paths, self.order, self.branch, str(self.at))
        return hashlib.sha256(trusted(parts).encode()).hexdigest()[:16]


class _HitCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Position at which a page starts: a number of hits at a seq.

    Not after a score: every commit changes the scores of all hits, and hardly their order.
    """

    query: str
    seq: int
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)]

    def format(self) -> str:
        return base64.urlsafe_b64encode(trusted(self).encode()).decode().rstrip("=")


def _parse_cursor(text: str, query: DocumentSearch) -> _HitCursor:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=_HitCursor)
    except (TypeError, binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = None
    if cursor is None or cursor.query != query.digest:
        raise InvalidInput(
            f"after: must be `next` of a page of this query, got {text!r:.80}",
            hint="Repeat the query without `after`, and then change nothing but `after`.",
        )
    return cursor


def make_query(
    query: str | None,
    vector: Sequence[float] | None,
    *,
    index: str | None,
    paths: Sequence[str] | None,
    order: SearchOrder,
    limit: int,
    branch: str,
    at: At,
) -> DocumentSearch:
    """Return a search; raise InvalidInput for arguments that are not valid."""
    checked = _check_search(order, paths, limit)
    if (query is None) == (vector is None):
        raise InvalidInput("pass either words or `vector`")
    if vector is None:
        return DocumentSearch(
            parse_text_query(cast("str", query)), None, index, checked, order, branch, at
        )
    if paths is not None or order != "score":
        raise InvalidInput("pass `vector` without `paths` and `order`")
    return DocumentSearch(None, check_vector(vector), index, None, order, branch, at)


def _check_search(order: object, paths: object, limit: object) -> tuple[str, ...] | None:
    if type(limit) is not int or not 1 <= limit <= FIND_LIMIT_MAX:
        raise InvalidInput(f"limit must be from 1 to {FIND_LIMIT_MAX}, got {limit!r:.100}")
    if order not in _ORDERS:
        raise InvalidInput(f"order must be 'score' or 'newest', got {order!r:.100}")
    if paths is None:
        return None
    if not isinstance(paths, list | tuple) or not paths:
        raise InvalidInput(f"paths must be a list of JSON Pointers, got {paths!r:.100}")
    for path in paths:
        declaration.parse_path(path)
    return tuple(paths)


def search(space: Space, query: DocumentSearch, limit: int, after: str | None) -> SearchPage:
    """Return a page of the documents that match."""
    cursor = None if after is None else _parse_cursor(after, query)
    with space.view() as view:
        return _search(view, query, limit, cursor)


def _search(
    view: HistoryReader, query: DocumentSearch, limit: int, cursor: _HitCursor | None
) -> SearchPage:
    branch_named(view, query.branch)
    index = _choose(view, query)
    # An index of the newest state has nothing to pin a page to.
    is_pinned = cursor is not None and index.options.history == "all"
    at = cursor.seq if cursor is not None and is_pinned else query.at
    target = target_of(view, query.branch, at)
    links = chain(view, query.branch, target)
    offset = 0 if cursor is None else cursor.offset
    columns = None if query.paths is None else [index.pointers.index(path) for path in query.paths]
    rows: Sequence[_Row]
    if query.text is None:
        assert query.vector is not None
        rows = nearest(view, index, query.vector, links, page=(limit + 1, offset))
    else:
        table = table_of(index.ix)
        hits = SQL.hits.format(table=table, score=f"bm25({table})")
        rows = view.all(
            _ORDERS[query.order].format(hits=hits),
            (match_expression(query.text, columns), trusted(links), limit + 1, offset),
        )
    items: list[SearchHit] = []
    used = 0
    for row, state in _with_states(view, links, rows[:limit]):
        used += 1
        # Without a document only in a damaged index, which `verify` reports.
        if state is not None and state.document is not None:
            snippets = (
                () if query.text is None else _snippets(index, columns, query.text, state.document)
            )
            items.append(SearchHit(row[0], state.document, state.seq, 0.0 - row[1], snippets))
    following = None
    if used < len(rows):
        following = _HitCursor(query.digest, target, offset + used).format()
    total = rows[0][2] if rows else 0
    return SearchPage(Rows(items, SearchHit), following, total, index.name, target)


def _with_states(
    view: HistoryReader, links: Sequence[BranchLink], rows: Sequence[_Row]
) -> Iterator[tuple[_Row, State | None]]:
    """Yield the rows with their states, as many as fit into a page."""
    size = 0
    for start in range(0, len(rows), _SLICE_ROWS):
        batch = rows[start : start + _SLICE_ROWS]
        states = reader.states(view, links, [row[0] for row in batch])
        for row in batch:
            state = states[row[0]]
            size += 0 if state is None else len(trusted(state.document))
            if size > FIND_BYTES_MAX and (start or row is not batch[0]):
                return
            yield row, state


def _choose(view: HistoryReader, query: DocumentSearch) -> Index:
    """Return the index that serves a search."""
    kind = "vector" if query.text is None else "text"
    indexes = [index for index in declaration.load(view.snapshot) if index.kind == kind]
    named = [index for index in indexes if query.index_name in (None, index.name)]
    paths = set(query.paths or ())
    fitting = [index for index in named if paths <= set(index.pointers)]
    if query.index_name is not None and not named:
        raise NotFound(f"unknown {kind} index {query.index_name!r:.100}")
    if not fitting:
        missing = f" with the paths {sorted(paths)!r:.200}" if paths else ""
        raise Refused(
            f"no {kind} index{missing}",
            hint=_HINTS[kind],
        )
    if len(fitting) > 1:
        raise InvalidInput(
            f"several {kind} indexes fit: {', '.join(index.name for index in fitting)}",
            hint="Pass the name of one as `index`.",
        )
    (index,) = fitting
    if not index.is_complete:
        raise Busy(
            f"index {index.name!r} is still being built",
            hint=f"Wait for it with `space.indexes.wait({index.name!r})`.",
        )
    if index.options.history == "now" and (query.branch or query.at is not None):
        raise Refused(f"index {index.name!r} has only the newest state of the default branch")
    return index


def _snippets(
    index: Index, columns: Sequence[int] | None, query: TextQuery, document: Document
) -> tuple[TextSnippet, ...]:
    """Return the parts of a document that match, or the beginning of its first text."""
    snippets: list[TextSnippet] = []
    first: TextSnippet | None = None
    for path, text in _texts(index, columns, document):
        snippet = query.snippet(text[:SNIPPET_SOURCE_CHARS])
        made = TextSnippet(path, snippet.text, snippet.highlights)
        first = first or made
        if made.highlights:
            snippets.append(made)
            if len(snippets) == SNIPPETS_MAX:
                break
    if not snippets and first is not None:
        snippets.append(first)
    return tuple(snippets)


def _texts(
    index: Index, columns: Sequence[int] | None, document: Document
) -> Iterator[tuple[str, Any]]:
    for number, (pointer, path) in enumerate(zip(index.pointers, index.paths, strict=True)):
        if columns is None or number in columns:
            for value in resolve(document, path):
                if type(value) is str and value:
                    yield pointer, value
