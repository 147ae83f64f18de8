"""What the store knows of each model's databases, by the name that a database carries: its
counters.

A tool that backs up or restores a database must know how far its counters have come, and where a
model keeps them.
"""

from __future__ import annotations

from pathlib import Path

from fourfold.kernel import Sequence, inspection
from fourfold.models import documents

_COUNTERS: dict[str, tuple[Sequence, ...]] = {
    kind.profile.name: (kind.seq,) for kind in documents.HISTORIES.values()
}


def counters_of_model(model: str) -> tuple[Sequence, ...] | None:
    """The counters of a model's databases; None where the kernel's own table holds them."""
    return _COUNTERS.get(model)


def counters_of(path: Path) -> tuple[Sequence, ...] | None:
    return counters_of_model(inspection.model_of(path))
