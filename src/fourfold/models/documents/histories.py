"""The ways in which a space may keep its history."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fourfold.errors import ForeignFile, InvalidInput
from fourfold.kernel import inspection
from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.history import History
from fourfold.models.documents.revisions.log import REVISIONS

HISTORIES: dict[str, History] = {kind.name: kind for kind in (REVISIONS, FACTS)}
"""Kinds of history by name."""
DEFAULT_HISTORY = REVISIONS.name
_BY_MODEL: Final = {kind.profile.name: kind for kind in HISTORIES.values()}


def history_in(path: Path) -> History:
    """Return the kind of history of the space in a file; raise if there is no space."""
    model = inspection.model_of(path)
    if model not in _BY_MODEL:
        raise ForeignFile(f"{path}: holds {model!r} data, not documents")
    return _BY_MODEL[model]


def check_history(name: str | None) -> str | None:
    """Return the name of a kind of history, or None; raise InvalidInput for another one."""
    if name is not None and name not in list(HISTORIES):
        raise InvalidInput(
            f"{name!r:.100} is not a kind of history", hint=f"One of: {', '.join(HISTORIES)}."
        )
    return name
