"""Counters and checks of each model's databases, by the model name in the database.

Tools that back up, restore or verify a database need to know where the model stores its counters,
and which invariants its tables have. A database of the user has its counters in the kernel's table,
and no other invariants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fourfold.blobs import FolderBlobs
from fourfold.errors import FourfoldError
from fourfold.kernel import Database, Migration, Profile, Sequence, inspection
from fourfold.models import documents, graphs, sessions, streams
from fourfold.models.documents import History
from fourfold.models.graphs import verify as graph_verification
from fourfold.models.sessions.verify import contents
from fourfold.store.space_verify import faults_of

_HISTORIES: dict[str, History] = {kind.profile.name: kind for kind in documents.HISTORIES.values()}


@dataclass(frozen=True, slots=True)
class Model:
    """A model that stores everything in one database."""

    profile: Profile
    migrations: tuple[Migration, ...]
    counters: tuple[Sequence, ...]
    problems: Callable[[Database], list[str]]


def _session_problems(database: Database) -> list[str]:
    return contents(sessions.SqliteLog(database), FolderBlobs(database.path.parent / "blobs"))


def _graph_problems(database: Database) -> list[str]:
    with database.read(deadline_s=float("inf")) as snapshot:
        return graph_verification.problems(snapshot, str(database.path), database.identity())


def _stream_problems(database: Database) -> list[str]:
    return list(streams.Streams(database).verify())


_MODELS = {
    model.profile.name: model
    for model in (
        Model(sessions.PROFILE, sessions.MIGRATIONS, (sessions.POSITION,), _session_problems),
        Model(graphs.PROFILE, graphs.MIGRATIONS, (graphs.GLOBAL_SEQ,), _graph_problems),
        Model(streams.PROFILE, streams.MIGRATIONS, (), _stream_problems),
    )
}


def counters_of_model(model: str) -> tuple[Sequence, ...] | None:
    """Return the counters of a model's databases; None if the kernel's table has them."""
    if model in _MODELS:
        return _MODELS[model].counters
    kind = _HISTORIES.get(model)
    return None if kind is None else (kind.seq,)


def counters_of(path: Path) -> tuple[Sequence, ...] | None:
    return counters_of_model(inspection.model_of(path))


def problems_of(path: Path) -> list[str]:
    """Return the problems of the database at `path`: file, counters, and the model's data."""
    try:
        model = inspection.model_of(path)
        if model in _HISTORIES:
            return [str(fault) for fault in faults_of(path)]
        found = inspection.check(path, counters_of_model(model))
        if model in _MODELS and not found:
            return _problems_in(path, _MODELS[model])
    except FourfoldError as error:
        return [error.message]
    return found


def _problems_in(path: Path, model: Model) -> list[str]:
    with Database.open(
        path,
        profile=model.profile,
        migrations=model.migrations,
        sequences=model.counters,
        mode="r",
    ) as database:
        return model.problems(database)


def history_of(path: Path) -> str | None:
    """Return the kind of history of the space in the file `path`; None if there is no space."""
    if not path.exists():
        return None
    try:
        kind = _HISTORIES.get(inspection.model_of(path))
    except FourfoldError:
        # The file is damaged, foreign or unfinished; opening it finishes it, or reports the
        # problem.
        return None
    return None if kind is None else kind.name
