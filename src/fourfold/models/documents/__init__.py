"""Documents: spaces with branches and time travel. Every state of every entity stays readable."""

from __future__ import annotations

from fourfold.kernel import Migration, profiles
from fourfold.kernel.statements import read_sql
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
from fourfold.models.documents.space import Space
from fourfold.models.documents.writer import SEQ

PROFILE = profiles.DOCUMENTS
MIGRATIONS = (
    Migration(
        1,
        "revisions",
        read_sql("fourfold.models.documents.revisions", "0001_revisions.sql"),
    ),
)
SEQUENCES = (SEQ,)

__all__ = [
    "MIGRATIONS",
    "PROFILE",
    "SEQUENCES",
    "Branch",
    "Commit",
    "ConfirmedRead",
    "LogEntry",
    "PendingRead",
    "Reads",
    "Revision",
    "Space",
    "State",
    "check_did",
]
