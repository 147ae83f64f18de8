"""The file of the graphs: its profile, its migrations, and the counter of all envelopes."""

from __future__ import annotations

from fourfold.kernel import Migration, Sequence, load_queries, profiles
from fourfold.kernel.named_queries import read_sql

_SQL = load_queries("fourfold.models.graphs")

PROFILE = profiles.GRAPHS
MIGRATIONS = (Migration(1, "graphs", read_sql("fourfold.models.graphs", "0001_graphs.sql")),)
GLOBAL_SEQ = Sequence(
    "global_seq",
    read=_SQL.last_seq,
    claim=_SQL.claim_seq,
    advance=_SQL.lift_seq,
    seed=_SQL.seed_seq,
    used=_SQL.greatest_seq,
)
