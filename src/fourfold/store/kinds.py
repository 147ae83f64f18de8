"""What the store knows of each model's databases, by the name that a database carries.

A tool that backs up, restores or verifies a database must know where the model keeps its counters,
and what must hold in its tables. A database of the user's own has its counters in the kernel's
table, and nothing more is known of it.
"""

from __future__ import annotations

from pathlib import Path

from fourfold.errors import FourfoldError
from fourfold.kernel import Database, Sequence, inspection
from fourfold.models import documents
from fourfold.models.documents import History, verification

_HISTORIES: dict[str, History] = {kind.profile.name: kind for kind in documents.HISTORIES.values()}


def counters_of_model(model: str) -> tuple[Sequence, ...] | None:
    """The counters of a model's databases; None where the kernel's own table holds them."""
    kind = _HISTORIES.get(model)
    return None if kind is None else (kind.seq,)


def counters_of(path: Path) -> tuple[Sequence, ...] | None:
    return counters_of_model(inspection.model_of(path))


def problems_of(path: Path) -> list[str]:
    """What is wrong with the database at `path`: with the file, its counters, and the model's data
    in it.
    """
    try:
        model = inspection.model_of(path)
    except FourfoldError as error:
        return [error.message]
    found = inspection.check(path, counters_of_model(model))
    kind = _HISTORIES.get(model)
    if kind is None or found:
        return found
    try:
        with (
            Database.open(
                path,
                profile=kind.profile,
                migrations=kind.migrations,
                sequences=(kind.seq,),
                mode="r",
            ) as database,
            database.read(deadline_s=float("inf")) as snapshot,
        ):
            return verification.problems(kind.view(snapshot), kind)
    except FourfoldError as error:
        return [error.message]


def history_of(path: Path) -> str | None:
    """How the space in the file `path` keeps its history; None when there is no space to ask."""
    if not path.exists():
        return None
    try:
        kind = _HISTORIES.get(inspection.model_of(path))
    except FourfoldError:
        # The file is damaged, foreign or unfinished; opening it finishes it, or says what is wrong.
        return None
    return None if kind is None else kind.name
