"""Documents: spaces with branches and time travel. Every state of every entity stays readable."""

from __future__ import annotations

from fourfold.models.documents.ancestry import Point
from fourfold.models.documents.comparing import Change, Difference
from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.merging import MergeConflict, MergeResult
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
from fourfold.models.documents.retention import Maintained
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.models.documents.space import Space
from fourfold.models.documents.space_blobs import BlobStat
from fourfold.models.documents.watching import Watch

HISTORIES = {kind.name: kind for kind in (REVISIONS, FACTS)}
"""How a space may keep its history, by name."""
DEFAULT_HISTORY = REVISIONS.name

__all__ = [
    "DEFAULT_HISTORY",
    "HISTORIES",
    "BlobStat",
    "Branch",
    "Change",
    "Commit",
    "ConfirmedRead",
    "Difference",
    "History",
    "LogEntry",
    "Maintained",
    "MergeConflict",
    "MergeResult",
    "PendingRead",
    "Point",
    "Reads",
    "Revision",
    "Space",
    "State",
    "Watch",
    "check_did",
]
