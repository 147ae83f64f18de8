"""Documents: spaces with branches and time travel. Every state of every entity stays readable."""

from __future__ import annotations

from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.names import check_did
from fourfold.models.documents.records import (
    Branch,
    Commit,
    ConfirmedRead,
    LogEntry,
    PendingRead,
    Reads,
    Revision,
    State,
)
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.models.documents.space import Space

HISTORIES = {kind.name: kind for kind in (REVISIONS, FACTS)}
"""How a space may keep its history, by name."""
DEFAULT_HISTORY = REVISIONS.name

__all__ = [
    "DEFAULT_HISTORY",
    "HISTORIES",
    "Branch",
    "Commit",
    "ConfirmedRead",
    "History",
    "LogEntry",
    "PendingRead",
    "Reads",
    "Revision",
    "Space",
    "State",
    "check_did",
]
