"""Hashes of facts and commits: merkle references to their content. Pure.

A reference may stand for the value that it refers to without changing the hash of the whole. So the
hash of a fact is made, and checked, from the reference to its document, and a large document is
hashed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fourfold.content import Reference, digest, digest_of_map, refer
from fourfold.errors import ContentError
from fourfold.models.documents.encoding import trusted

EMPTY_VALUE: Final = "__empty__"
"""The value of a deleted entity. It is no reference, because there is nothing to refer to."""

_CONTENT: Final = {"set": "value", "patch": "ops"}
_TYPES: Final = {fact_type: digest(fact_type) for fact_type in ("set", "patch", "delete")}


def fact_reference(
    fact_type: str, entity: str, value: Reference | None, parent: Reference | None
) -> Reference:
    """Return the hash of a fact about `entity`; without `parent` it is the first."""
    named = digest(entity)
    parts = {
        "type": _TYPES.get(fact_type) or digest(fact_type),
        "id": named,
        # The first fact about an entity follows `{"id": entity}`.
        "parent": digest_of_map({"id": named}) if parent is None else parent.digest,
    }
    if fact_type != "delete":
        if fact_type not in _CONTENT or value is None:
            raise ContentError(f"a fact of type {fact_type!r} with value {value} has no hash")
        parts[_CONTENT[fact_type]] = value.digest
    return Reference(digest_of_map(parts))


def commit_reference(
    *,
    seq: int,
    branch: str,
    session: str,
    local_seq: int,
    created_at: str,
    original: str,
    resolved: Sequence[dict[str, int]],
    facts: Sequence[Reference],
    texts: Sequence[str | None],
    previous: Reference | None,
) -> Reference:
    """Return the hash of a commit: facts and previous commit as references, the rest as text.

    It covers the texts beside the facts, because a fact does not distinguish 1 from 1.0 and a text
    does.
    """
    request = trusted(
        [seq, branch, session, local_seq, created_at, original, list(resolved), list(texts)]
    )
    return refer({"request": request, "facts": list(facts), "previous": previous})
