"""The file of the graphs: its profile, its migrations, and the counter of all envelopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fourfold.kernel import Sequence, Transaction, load_migrations, load_queries, profiles
from fourfold.models.graphs import intervals, row_index

_SQL = load_queries("fourfold.models.graphs")

PROFILE = profiles.GRAPHS
_APPLY: dict[str, Callable[[Transaction], None]] = {
    "edge_intervals": partial(intervals.rebuild, kinds=("edge",)),
    "value_intervals": partial(intervals.rebuild, kinds=("attr", "rating")),
    "row_index": row_index.replace_indexes,
}
"""What a migration does after its SQL, by its name."""
MIGRATIONS = tuple(
    replace(migration, apply=_APPLY.get(migration.name))
    for migration in load_migrations("fourfold.models.graphs")
)
GLOBAL_SEQ = Sequence(
    "global_seq",
    read=_SQL.last_seq,
    claim=_SQL.claim_seq,
    advance=_SQL.lift_seq,
    seed=_SQL.seed_seq,
    used=_SQL.greatest_seq,
)
