"""The ways in which a space may keep its history."""

from __future__ import annotations

from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.revisions.log import REVISIONS

HISTORIES: dict[str, History] = {kind.name: kind for kind in (REVISIONS, FACTS)}
"""How a space may keep its history, by name."""
DEFAULT_HISTORY = REVISIONS.name
