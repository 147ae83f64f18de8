"""What `materialize` keeps of sessions: their views, and the lists that a view has.

What an event added stays as it is (messages, evals, heads, edges), so those tables only grow; the
others are as the newest event left them. A session that is deleted leaves all of them.
"""

from __future__ import annotations

from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.jobs.refresh import KeptTable

_SQL: Final = load_queries("fourfold.pipeline.sessions", "tables.sql")
TABLES: Final = (
    KeptTable("view", ("session",)),
    KeptTable("turns", ("session", "turn_id")),
    KeptTable("steps", ("session", "step_id")),
    KeptTable("messages", ("session", "message_id"), grows=True),
    KeptTable("evals", ("session", "eval_id"), grows=True),
    KeptTable("heads", ("session", "event_id"), grows=True),
    KeptTable("edges", ("session", "event_id"), grows=True),
)
NOUN: Final = "session"
WHOLE: Final = False


def generation(mark: FileBound) -> int:
    """Another number once rows that were shown before are not to be shown any more, or rows are
    shown that no event brought: sessions are created without one, and deleted.
    """
    [(number,)] = cuts.fetch_rows(mark, _SQL.generation)
    return int(number)
