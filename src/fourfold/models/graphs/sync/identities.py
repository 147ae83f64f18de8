"""Identities: who owns what, as objects of the system's own app, and the cache of their keys.

The authority is the graph of app 0: a parent of the type `identity` with an attribute `pubkey` and,
if it has a name, one `label`. The number of an identity is the id of that parent. The table
`identities` repeats this for fast lookups, and can be rebuilt from the graph at any time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fourfold.errors import CorruptData, Refused
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.graphs.records import SYSTEM_APP, Attr, Identity, Kind, Parent
from fourfold.models.graphs.statements import SQL, app_statements, statements_of

IDENTITY, PUBKEY, LABEL = "identity", "pubkey", "label"
TYPES: dict[Kind, tuple[str, ...]] = {"parent": (IDENTITY,), "attr": (PUBKEY, LABEL)}
"""The types of the rows that identities consist of."""


class RebuildResult(NamedTuple):
    """Rows of the rebuilt cache: those that were right, added or fixed, dropped."""

    kept: int
    restored: int
    dropped: int


def in_graph(snapshot: ReadTransaction) -> dict[int, Identity]:
    """Return the identities in the graph, by their numbers."""
    parents = _current(snapshot, "parent", IDENTITY)
    values: dict[str, dict[int, str | None]] = {}
    for key in (PUBKEY, LABEL):
        rows = [Attr._make(row) for row in _current(snapshot, "attr", key)]
        values[key] = {row.parent_id: row.value_text for row in rows}
    identities = {}
    for row in map(Parent._make, parents):
        number = row.object_id
        pubkey = values[PUBKEY].get(number)
        if pubkey is None:
            raise CorruptData(f"identity {number} has no public key in app {SYSTEM_APP}")
        identities[number] = Identity(number, pubkey, values[LABEL].get(number), row.created_at)
    return identities


def in_cache(snapshot: ReadTransaction) -> dict[int, Identity]:
    """Return the identities by number, from the cache of the file."""
    rows = [Identity._make(row) for row in snapshot.all(SQL.identities)]
    return {identity.id: identity for identity in rows}


def rebuild(txn: Transaction, *, drop_unknown: bool) -> RebuildResult:
    """Rebuild the cache of identities from the graph.

    An identity that is only in the cache is dropped only on request, because rows may have it as
    their owner.
    """
    graph, cache = in_graph(txn), in_cache(txn)
    unknown = sorted(set(cache) - set(graph))
    if unknown and not drop_unknown:
        raise Refused(
            f"the graph of app {SYSTEM_APP} knows nothing of identity "
            f"{', '.join(map(str, unknown[:5]))}",
            hint="Drop them with `drop_unknown` if they are not needed.",
        )
    wrong = [number for number, identity in graph.items() if cache.get(number) != identity]
    if wrong or unknown:
        txn.execute(SQL.drop_identities)
        for _, identity in sorted(graph.items()):
            txn.execute(SQL.put_identity, tuple(identity))
    return RebuildResult(len(graph) - len(wrong), len(wrong), len(unknown))


def problems(snapshot: ReadTransaction) -> list[str]:
    """Return the differences between the cache and the graph."""
    try:
        graph = in_graph(snapshot)
    except CorruptData as error:
        return [f"identities: {error.message}"]
    cache = in_cache(snapshot)
    return [
        f"identities: {number} differs from app {SYSTEM_APP}"
        for number in sorted(set(graph) | set(cache))
        if graph.get(number) != cache.get(number)
    ]


def _current(snapshot: ReadTransaction, kind: Kind, type_key: str) -> list[tuple[Any, ...]]:
    type_id = snapshot.value(app_statements(SYSTEM_APP).type_by_key, (kind, type_key))
    if type_id is None:
        return []
    sql = statements_of(SYSTEM_APP, kind).of_type_current
    return snapshot.all(sql, (0, (1 << 63) - 1, -1, type_id))
