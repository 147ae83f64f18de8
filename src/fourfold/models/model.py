"""The registry of models: each model is described once, by the `MODEL` of its `model.py`.

    for model in all_models():
        for name in model.location.names(root): ...

A model is one folder, `models/<name>/`, and one line in `_MODULES`. Opening, backup, restore,
verification, publishing, the pipeline and the command line iterate over the registry and name no
model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from fourfold.archive.publication import Description
from fourfold.blobs import FolderBlobs
from fourfold.errors import FormatError, FourfoldError, NotFound
from fourfold.kernel import Database, Migration, Profile, Sequence, inspection
from fourfold.models.problem import Problem, to_problems
from fourfold.objects import ObjectStore
from fourfold.settings import Settings
from fourfold.sql_result import Result

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of database of a model: how it is opened, and what is published of it."""

    name: str
    """Name of the kind in the manifest of a published database."""
    profile: Profile
    """Its name is stored in each database of this kind."""
    migrations: tuple[Migration, ...]
    sequences: tuple[Sequence, ...] = ()
    publication: Description | None = None
    """Part of a database that is published; None if the model publishes its records itself."""


@dataclass(frozen=True, slots=True)
class Location:
    """Location of the databases of a model in the folder of a store, and their names.

    `Location("sessions", "events.db")` is one database with the name `sessions`.
    `Location("spaces", "did:*.sqlite", check_did)` is a database for each id, with the name
    `spaces/<id>`. A name is the same on every node.
    """

    folder: str
    file: str
    check_id: Callable[[str], object] | None = None
    """Raises for an invalid id, which must not become a file name; None for a single database."""

    @property
    def suffix(self) -> str:
        """Suffix of the id in the name of a file; the whole name for a single database."""
        return self.file.rpartition("*")[2]

    def name(self, key: str) -> str:
        """Return the name of the database with the id `key`."""
        return f"{self.folder}/{key}"

    def id_of(self, name: str) -> str:
        """Return the id in the name of a database."""
        return name.removeprefix(f"{self.folder}/")

    def covers(self, name: str) -> bool:
        """Return True if a database with this name belongs here."""
        if self.check_id is None:
            return name == self.folder
        return name.startswith(f"{self.folder}/")

    def names(self, root: Path) -> list[str]:
        """Return the names of the existing databases in the store at `root`, sorted."""
        folder = root / self.folder
        if self.check_id is None:
            return [self.folder] if (folder / self.file).exists() else []
        start, _, suffix = self.file.rpartition("*")
        end = len(suffix)
        try:
            # A path object for each of 10,000 files takes ten times as long.
            files = os.listdir(folder)  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            self.name(file[:-end])
            for file in files
            if file.startswith(start) and file.endswith(suffix)
        )

    def path(self, root: Path, name: str | None = None) -> Path:
        """Return the path of a database in the store at `root`; it need not exist."""
        if self.check_id is None:
            return root / self.folder / self.file
        assert name is not None
        key = self.id_of(name)
        self.check_id(key)
        return root / self.folder / f"{key}{self.suffix}"


@dataclass(frozen=True, slots=True)
class StoreContext:
    """Context that a store passes to a model that it opens."""

    root: Path
    settings: Settings
    writable: bool
    objects: Callable[[], ObjectStore]
    """Opens the object store, on first use."""
    sql: Callable[..., Result] | None = None
    """Runs a query over the tables of the store; its option `space` selects one space."""
    before_collect: Callable[[], None] | None = None
    """Called before published objects are deleted, to remove other references to them."""


def _same(profile: Profile, _settings: Settings) -> Profile:
    return profile


def _nothing(*_values: object) -> None:
    return None


def _never(_problem: Problem) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Generic[T]):
    """A model: its databases in a store, and what the store does with them.

    `T` is the collection that the model opens over a database, such as `Sessions`.
    """

    name: str
    kinds: tuple[FileKind, ...]
    """Kinds of databases; the first one is the default for a new database."""
    location: Location
    open: Callable[[Database, FileKind, StoreContext], T]
    """Opens the collection over a database. The store calls it once for each database."""
    verify: Callable[[Path], Iterable[Problem]]
    """Yields the problems of a database: the file, its counters, and the rules of the model."""
    close: Callable[[T], None] = _nothing
    """Called before the database of a collection is closed."""
    configure: Callable[[Profile, Settings], Profile] = _same
    """Applies the settings of a store to a profile."""
    blobs: Callable[[Path], FolderBlobs] | None = None
    """Returns the large values that are files, by the folder of the store; None without any."""
    restored: Callable[[Path, Path], None] = _nothing
    """Called with each database that was restored from a backup, which may need migrations, and
    with the folder for copies before migrations.
    """
    is_harmless: Callable[[Problem], bool] = _never
    """Returns True for a problem that is not damage, so that a restore does not help."""
    id_column: str = "database"
    """Column of archive tables with the id of the database that a row is from."""
    tables: str | None = None
    """Module whose `TABLES` describes the tables of the model for SQL and Spark. It is above the
    models, and imported on first use.
    """
    pipeline: str | None = None
    """Module whose `MODEL` describes the tables and jobs of the model for Spark. The pipeline is
    above the models, and imports it on first use.
    """

    def kind(self, name: str) -> FileKind:
        """Return a kind of database by its name; raise FormatError if it is unknown."""
        for kind in self.kinds:
            if kind.name == name:
                return kind
        names = ", ".join(kind.name for kind in self.kinds)
        raise FormatError(f"{self.name}: unknown kind of database {name!r}, expected {names}")

    def kind_in(self, path: Path) -> FileKind | None:
        """Return the kind of the database at `path`; None if there is none of this model.

        A file that is damaged, foreign or unfinished has none either. Opening it completes it, or
        reports the problem.
        """
        if not path.exists():
            return None
        try:
            stored = inspection.model_of(path)
        except FourfoldError:
            return None
        return next((kind for kind in self.kinds if kind.profile.name == stored), None)

    @property
    def published(self) -> bool:
        """True if the databases are published as a whole, by their description."""
        return any(kind.publication is not None for kind in self.kinds)


_MODULES = {
    "documents": "fourfold.models.documents.model",
    "sessions": "fourfold.models.sessions.model",
    "graphs": "fourfold.models.graphs.model",
    "streams": "fourfold.models.streams.model",
}
"""The models by name; each module is imported on first use."""

_added: tuple[Model[Any], ...] = ()


def all_models() -> tuple[Model[Any], ...]:
    """Return every model. A model's modules are imported by the first call."""
    return (*map(_imported, _MODULES), *_added)


def is_built_in(known: Model[Any]) -> bool:
    """Return True if every process knows a model, not only this one."""
    return known.name in _MODULES


def _imported(name: str) -> Model[Any]:
    module: Any = import_module(_MODULES[name])
    return cast("Model[Any]", module.MODEL)


@contextmanager
def added(model: Model[Any]) -> Iterator[None]:
    """Add a model to the registry of this process during a `with` block.

    For a model that is not part of the package, such as one under development.
    """
    global _added  # noqa: PLW0603 - the registry belongs to the process
    before = _added
    _added = (*before, model)
    try:
        yield
    finally:
        _added = before


def model(name: str) -> Model[Any]:
    """Return a model by its name; raise NotFound with the known names."""
    if name in _MODULES:
        return _imported(name)
    for known in _added:
        if known.name == name:
            return known
    names = ", ".join((*_MODULES, *(known.name for known in _added)))
    raise NotFound(f"unknown model {name!r:.100}", hint=f"Models: {names}.")


def model_of(path: Path) -> Model[Any] | None:
    """Return the model whose data the database at `path` contains; None for one of the user's.

    Raises:
        FormatError: the file is not a database of Fourfold.
    """
    kind = find_kind(inspection.model_of(path))
    return None if kind is None else kind[0]


def find_kind(stored: str) -> tuple[Model[Any], FileKind] | None:
    """Return the model and the kind of database by the model name stored in it, or None."""
    for known in all_models():
        for kind in known.kinds:
            if kind.profile.name == stored:
                return known, kind
    return None


def model_of_database(name: str) -> Model[Any]:
    """Return the model of the database with this name, such as `sessions` or `spaces/<did>`."""
    for known in all_models():
        if known.location.covers(name):
            return known
    raise FormatError(f"unknown database {name!r}")


def verify_file(
    path: Path, kind: FileKind, check: Callable[[Database], Iterable[Problem]]
) -> list[Problem]:
    """Return the problems of a database: of its pages and counters, or else those of `check`."""
    problems = inspection.check(path, kind.sequences)
    if problems:
        return to_problems(problems)
    with Database.open(
        path,
        profile=kind.profile,
        migrations=kind.migrations,
        sequences=kind.sequences,
        mode="r",
    ) as database:
        return list(check(database))
