"""Tables that `materialize` writes for sessions: their views, and the lists of a view.

Rows that an event added never change (messages, evals, heads, edges), so those tables only grow;
the others have the state after the newest event. A deleted session is removed from all of them.
"""

from __future__ import annotations

from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.jobs.materialize import FileTables
from fourfold.pipeline.jobs.table_folder import FolderTable

_SQL: Final = load_queries("fourfold.query.sessions", "tables.sql")


def generation(bound: FileBound) -> int:
    """Return a number that changes when rows must disappear, or appear without an event: sessions
    are created and deleted without one.
    """
    [(number,)] = cuts.fetch_rows(bound, _SQL.generation)
    return int(number)


MATERIALIZER: Final = FileTables(
    (
        FolderTable("view", ("session",)),
        FolderTable("turns", ("session", "turn_id")),
        FolderTable("steps", ("session", "step_id")),
        FolderTable("messages", ("session", "message_id"), grows=True),
        FolderTable("evals", ("session", "eval_id"), grows=True),
        FolderTable("heads", ("session", "event_id"), grows=True),
        FolderTable("edges", ("session", "event_id"), grows=True),
    ),
    "session",
    generation,
)
