"""Search over the documents of a space: by words, by the nearest vectors, or by both."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from fourfold.content.filters import Filter, parse_filter
from fourfold.content.text import TextQuery, parse_text_query
from fourfold.errors import Busy, InvalidInput, NotFound, Refused
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import At, BranchLink, branch_named, chain, target_of
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import Index, resolve
from fourfold.models.documents.indexes.finder import (
    FIND_BYTES_MAX,
    FIND_LIMIT_MAX,
    FindQuery,
    matching_ids,
)
from fourfold.models.documents.indexes.text import SQL, match_expression, table_of
from fourfold.models.documents.indexes.vector import check_vector, nearest
from fourfold.models.documents.records import Document, State
from fourfold.tabular import Rows, show_record

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

SNIPPETS_MAX: Final = 3
"""Snippets of one hit."""
SNIPPET_SOURCE_CHARS: Final = 65_536
"""Beginning of a text in which matches are highlighted."""

FUSED_MAX: Final = 1_000
"""Best hits by words, and by vectors, that a search for both combines."""
FUSION_RANKS: Final = 60
"""The constant of reciprocal rank fusion: how little the first ranks stand out."""

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
    """Relevance by BM25, the cosine of two vectors, or both ranks combined; higher is better."""
    snippets: tuple[TextSnippet, ...]
    """Parts of the texts with matches; none for vectors."""


class SearchPage(msgspec.Struct, frozen=True):
    """A page of hits. Pass `next` as `after` for the next one; None if there is none."""

    items: Rows[SearchHit]
    next: str | None
    total: int
    """Documents that match, on all pages; of both kinds, those among the best of each."""
    index: str
    """Name of the index; with words and a vector, of both."""
    seq: int
    """The seq at which the documents were read."""

    def _repr_html_(self) -> str:
        return show_record(self)

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class DocumentSearch(NamedTuple):
    """Words to search for, and the branch and seq at which they are searched."""

    text: TextQuery | None
    vector: bytes | None
    """The words, a vector as it is stored, or both."""
    index_name: str | None
    paths: tuple[str, ...] | None
    order: SearchOrder
    branch: str
    at: At
    where: Filter
    snippet_paths: tuple[str, ...] | None = None
    """Paths of the snippets, by default those of the index."""

    @property
    def digest(self) -> str:
        """Identifies the query in its cursors."""
        texts = () if self.text is None else self.text.parts
        words = [(part.tokens, part.prefix, part.excluded, part.required) for part in texts]
        vector = None if self.vector is None else self.vector.hex()
        where = self.where.where if self.where else None
        any_part = self.text is not None and self.text.any_part
        parts = (words, any_part, vector, where, self.index_name, self.paths)
        parts_of_view = (self.order, self.branch, str(self.at))
        return hashlib.sha256(trusted((*parts, *parts_of_view)).encode()).hexdigest()[:16]


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
    where: Mapping[str, Any] | None,
    index: str | None,
    paths: Sequence[str] | None,
    order: SearchOrder,
    limit: int,
    branch: str,
    at: At,
) -> DocumentSearch:
    """Return a search; raise InvalidInput for arguments that are not valid."""
    checked = _check_search(order, paths, limit)
    if query is None and vector is None:
        raise InvalidInput("pass words, `vector`, or both")
    if query is None and paths is not None:
        raise InvalidInput("pass `paths` with words")
    if vector is not None and order != "score":
        raise InvalidInput("pass `vector` without `order`")
    return DocumentSearch(
        None if query is None else parse_text_query(query),
        None if vector is None else check_vector(vector),
        *(index, checked, order, branch, at, parse_filter(where)),
    )


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
    indexes = _choose_all(view, query)
    # An index of the newest state has nothing to pin a page to.
    is_pinned = cursor is not None and all(i.options.history == "all" for i in indexes.values())
    at = cursor.seq if cursor is not None and is_pinned else query.at
    target = target_of(view, query.branch, at)
    links = chain(view, query.branch, target)
    offset = 0 if cursor is None else cursor.offset
    allowed: tuple[str, ...] = ()
    if query.where:
        allowed = (trusted(matching_ids(view, FindQuery(query.where, None, query.branch, target))),)
    rows = _rows(view, query, indexes, links, (limit + 1, offset), allowed)
    index = indexes.get("text")
    items: list[SearchHit] = []
    used = 0
    for row, state in _with_states(view, links, rows[:limit]):
        used += 1
        # Without a document only in a damaged index, which `verify` reports.
        if state is not None and state.document is not None:
            snippets: tuple[TextSnippet, ...] = ()
            if query.text is not None and index is not None:
                columns = _columns(query.snippet_paths or query.paths, index)
                snippets = _snippets(index, columns, query.text, state.document)
            items.append(SearchHit(row[0], state.document, state.seq, 0.0 - row[1], snippets))
    following = None
    if used < len(rows):
        following = _HitCursor(query.digest, target, offset + used).format()
    total = rows[0][2] if rows else 0
    names = ", ".join(index.name for index in indexes.values())
    return SearchPage(Rows(items, SearchHit), following, total, names, target)


def _columns(paths: Sequence[str] | None, index: Index) -> list[int] | None:
    """Return the columns of a text index for its paths; None for all."""
    return None if paths is None else [index.pointers.index(path) for path in paths]


def _rows(  # noqa: PLR0917 - a search in one state
    view: HistoryReader,
    query: DocumentSearch,
    indexes: dict[str, Index],
    links: Sequence[BranchLink],
    page: tuple[int, int],
    allowed: tuple[str, ...],
) -> Sequence[_Row]:
    """Return the hits of a page, by words, by vectors, or by both; `page` is limit, offset."""
    limit, offset = page
    rankings: list[Sequence[_Row]] = []
    if len(indexes) > 1:
        page = (FUSED_MAX, 0)
    if query.text is not None:
        index = indexes["text"]
        table = table_of(index.ix)
        hits = SQL.hits.format(
            table=table, score=f"bm25({table})", allowed=SQL.allowed if allowed else ""
        )
        expression = match_expression(query.text, _columns(query.paths, index))
        rankings.append(
            view.all(
                _ORDERS[query.order].format(hits=hits),
                (expression, trusted(links), *page, *allowed),
            )
        )
    if query.vector is not None:
        rankings.append(
            nearest(view, indexes["vector"], query.vector, links, page=page, allowed=allowed)
        )
    if len(rankings) == 1:
        return rankings[0]
    return _fuse(rankings)[offset : offset + limit]


def _fuse(rankings: Sequence[Sequence[_Row]]) -> list[_Row]:
    """Combine rankings by reciprocal ranks: the scores of words and vectors do not compare."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, 1):
            scores[row[0]] = scores.get(row[0], 0.0) - 1 / (FUSION_RANKS + rank)
    order = sorted(scores.items(), key=lambda hit: (hit[1], hit[0]))
    return [(entity, score, len(order)) for entity, score in order]


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


def _choose_all(view: HistoryReader, query: DocumentSearch) -> dict[str, Index]:
    """Return the indexes that serve a search, by kind; `index` may name either."""
    kinds = [
        kind for kind, part in (("text", query.text), ("vector", query.vector)) if part is not None
    ]
    declared = declaration.load(view.snapshot)
    named = [index for index in declared if index.name == query.index_name and index.kind in kinds]
    if query.index_name is not None and not named:
        raise NotFound(f"unknown {' or '.join(kinds)} index {query.index_name!r:.100}")
    chosen = {index.kind: [index] for index in named}
    return {
        kind: _choose(
            chosen.get(kind) or [index for index in declared if index.kind == kind], kind, query
        )
        for kind in kinds
    }


def _choose(indexes: Sequence[Index], kind: str, query: DocumentSearch) -> Index:
    """Return the index of a kind that serves a search."""
    paths = set(query.paths or ()) if kind == "text" else set()
    fitting = [index for index in indexes if paths <= set(index.pointers)]
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
