"""Databases of a store that are published: their names, how to open them, and what to publish.

A name is the same on every node: `spaces/<did>`, `sessions`, `graphs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fourfold.archive.publication import Contents, Description
from fourfold.archive.publisher import Subject
from fourfold.blobs import FolderBlobs
from fourfold.content.hashes import PREFIX
from fourfold.errors import FormatError, InvalidInput
from fourfold.kernel import Database, Migration, Profile
from fourfold.kernel import Sequence as Counter
from fourfold.models import documents, graphs, sessions
from fourfold.models.documents.publication import PUBLICATIONS
from fourfold.models.graphs.publication import PUBLICATION as GRAPHS
from fourfold.models.sessions.publication import PUBLICATION as SESSIONS
from fourfold.store import kinds, layout

if TYPE_CHECKING:
    from fourfold.store.store import Store

MODELS = ("documents", "sessions", "graphs", "streams")
_SPACE = "spaces/"
_SESSIONS = "sessions"
_GRAPHS = "graphs"
WITH_VALUES = frozenset(
    table.name
    for description in (*PUBLICATIONS.values(), SESSIONS, GRAPHS)
    for table in description.tables
    if table.content is not None
)
"""Tables whose large values are separate objects."""


class Kind(NamedTuple):
    """How to open a database, and what to publish of it."""

    model: str
    path: Path
    profile: Profile
    migrations: tuple[Migration, ...]
    sequences: tuple[Counter, ...]
    description: Description


def kind_of(store: Store, name: str, model: str | None = None) -> Kind:
    """Return the kind of a database by its name.

    The model is the published one, or that of its file. Raises for a name that does not belong to a
    store.
    """
    root, settings = store.root, store.settings
    if name == _SESSIONS and model in {None, _SESSIONS}:
        return Kind(
            _SESSIONS,
            layout.sessions_path(root),
            sessions.PROFILE.with_(synchronous=settings.sessions.synchronous),
            sessions.MIGRATIONS,
            (sessions.POSITION,),
            SESSIONS,
        )
    if name == _GRAPHS and model in {None, _GRAPHS}:
        return Kind(
            _GRAPHS,
            layout.graphs_path(root),
            graphs.PROFILE,
            graphs.MIGRATIONS,
            (graphs.GLOBAL_SEQ,),
            GRAPHS,
        )
    did = name.removeprefix(_SPACE)
    if model is None:
        model = kinds.history_of(layout.space_path(root, did)) or documents.DEFAULT_HISTORY
    history = documents.HISTORIES.get(model)
    if history is None or name_of_space(did) != name:
        raise FormatError(f"unknown database {name!r}")
    documents.check_did(did)
    return Kind(
        history.name,
        layout.space_path(root, did),
        history.profile.with_(page_size=settings.documents.page_size),
        history.migrations,
        (history.seq,),
        PUBLICATIONS[history.name],
    )


def path_of(store: Store, name: str) -> Path:
    """Return the path of a database, without opening it."""
    if name == _SESSIONS:
        return layout.sessions_path(store.root)
    if name == _GRAPHS:
        return layout.graphs_path(store.root)
    return layout.space_path(store.root, name.removeprefix(_SPACE))


@contextmanager
def subject_lent(store: Store, name: str) -> Iterator[Subject]:
    """Open a database for publishing, and close it again."""
    kind = kind_of(store, name)
    with store.lent(kind.path, kind.profile, kind.migrations, kind.sequences) as database:
        yield _subject(store, name, kind, database)


def subject_of(store: Store, name: str) -> Subject:
    """Return the subject of a database that stays open with its store."""
    if name == _SESSIONS:
        log = store.sessions.log
        assert isinstance(log, sessions.SqliteLog)
        database = log.database
    elif name == _GRAPHS:
        database = store.graphs.database
    else:
        database = store.space(name.removeprefix(_SPACE)).database
    return _subject(store, name, kind_of(store, name), database)


def _subject(store: Store, name: str, kind: Kind, database: Database) -> Subject:
    return Subject(
        name,
        kind.model,
        len(kind.migrations),
        database,
        kind.description,
        scratch_of(store.root) / name,
        _payloads(store) if name == _SESSIONS else None,
    )


def _payloads(store: Store) -> Contents:
    blobs = FolderBlobs(layout.session_blobs(store.root))
    return lambda digest: blobs.chunks(f"{PREFIX}{digest}")


def name_of_space(did: str) -> str:
    return f"{_SPACE}{did}"


def scratch_of(root: Path) -> Path:
    return root / ".publishing"


def names(store: Store, models: Sequence[str]) -> Iterator[str]:
    """Return the names of the existing databases of some models."""
    if "documents" in models:
        yield from map(name_of_space, store.spaces())
    if "sessions" in models and layout.sessions_path(store.root).exists():
        yield _SESSIONS
    if "graphs" in models and layout.graphs_path(store.root).exists():
        yield _GRAPHS


def check_models(models: Sequence[str] | None) -> Sequence[str]:
    if models is None:
        return MODELS
    unknown = sorted(set(models) - set(MODELS))
    if unknown or not models:
        raise InvalidInput(
            f"{', '.join(unknown) or 'nothing'} is not a published model",
            hint=f"One of: {', '.join(MODELS)}.",
        )
    return models
