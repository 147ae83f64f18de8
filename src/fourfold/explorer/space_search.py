"""Search of a space on its page: by words, by the nearest vectors, or by both, with a filter."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fourfold.content.filters import decode_filter
from fourfold.errors import Busy, InvalidInput, MissingDependency, Refused
from fourfold.explorer.page import ExplorerQuery, Visit
from fourfold.wire.documents import DocumentState, HitPage, SnippetRecord
from fourfold.wire.find import IndexRow

HITS_SHOWN: Final = 50
NO_SEARCH: Final = {"hits": None, "total": 0, "search_problem": "", "has_scores": False}


class SpaceSearchQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the search on the page of a space."""

    q: str = ""
    """Words to search for, by a full-text index of the space."""
    vector: str = ""
    """Numbers to search for, as a JSON array, by a vector index of the space."""
    like: str = ""
    """The entity whose vector is searched for."""
    index: str = ""
    """Name of the vector index, if there are several."""
    where: str = ""
    """A filter as JSON: the entities are those whose documents match."""

    @property
    def searches(self) -> bool:
        """True if there is something to search for; a filter alone lists entities."""
        return bool(self.q or self.vector or self.like)


async def search_space(
    visit: Visit,
    did: str,
    fields: SpaceSearchQuery,
    indexes: list[IndexRow],
    *,
    liked: DocumentState | None,
    point: dict[str, str],
) -> dict[str, Any]:
    """Return the hits of a search, or why there are none. `liked` is the document of `like`."""
    if not fields.searches:
        return NO_SEARCH
    try:
        page = await _send(visit, did, fields, _numbers(fields, indexes, liked), point)
    except (InvalidInput, Refused, Busy, MissingDependency) as error:
        return {**NO_SEARCH, "hits": [], "search_problem": f"{error.message}. {error.hint}"}
    hits = [
        {
            "id": hit.id,
            "seq": hit.seq,
            "score": hit.score,
            "parts": _parts(hit.snippets),
            "document": hit.document,
        }
        for hit in page.items
    ]
    has_scores = bool(fields.vector or fields.like)
    return {"hits": hits, "total": page.total, "search_problem": "", "has_scores": has_scores}


async def _send(
    visit: Visit,
    did: str,
    fields: SpaceSearchQuery,
    vector: list[float] | None,
    point: dict[str, str],
) -> HitPage:
    path = f"/v1/spaces/{did}/search"
    if vector is None and not fields.where:
        return await visit.api.get(path, HitPage, q=fields.q, limit=HITS_SHOWN, **point)
    body: dict[str, Any] = {name: value for name, value in point.items() if value}
    body["limit"] = HITS_SHOWN
    if fields.q:
        body["q"] = fields.q
    if vector is not None:
        body["vector"] = vector
    if fields.index and not fields.q:
        body["index"] = fields.index
    if fields.where:
        body["where"] = decode_filter(fields.where).where
    return await visit.api.post(path, HitPage, body)


def _numbers(
    fields: SpaceSearchQuery, indexes: list[IndexRow], liked: DocumentState | None
) -> list[float] | None:
    """Return the vector to search for; None for a search by words only."""
    if fields.vector:
        return _parse_vector(fields.vector, "vector")
    if not fields.like:
        return None
    names = [row for row in indexes if not fields.index or row.name == fields.index]
    if not names:
        raise Refused("the space has no index of kind 'vector'", hint="Create one.")
    value = None if liked is None else _value_at(liked.document, names[0].paths[0])
    if not isinstance(value, list):
        raise InvalidInput(
            f"{fields.like!r:.100} has no vector at {names[0].paths[0]}",
            hint="Enter the id of a document that has one.",
        )
    return _parse_vector(msgspec.json.encode(value).decode(), names[0].paths[0])


def _parse_vector(text: str, subject: str) -> list[float]:
    try:
        return msgspec.json.decode(text, type=list[float])
    except msgspec.DecodeError:
        raise InvalidInput(
            f"{subject} must be an array of numbers, got {text[:60]!r}",
            hint="Paste a JSON array, such as [0.1, 0.2].",
        ) from None


def _value_at(document: Any, path: str) -> Any:
    """Return the value at a path of a document; None if there is none."""
    value = document
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _parts(snippets: list[SnippetRecord]) -> list[tuple[str, bool]]:
    """Return the texts of the first snippet, each with True if it is a match."""
    if not snippets:
        return []
    text, last = snippets[0].text, 0
    parts: list[tuple[str, bool]] = []
    for start, end in snippets[0].highlights:
        parts += (text[last:start], False), (text[start:end], True)
        last = end
    return [*parts, (text[last:], False)]
