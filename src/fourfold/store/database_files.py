"""Databases of a store by name, for every model of the registry, and those that are published.

A name is the same on every node: `spaces/<did>`, `sessions`, `graphs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold.archive.publication import Contents, Description
from fourfold.archive.subject import Subject
from fourfold.content.hashes import PREFIX
from fourfold.errors import FormatError, InvalidInput
from fourfold.kernel import Database, Profile
from fourfold.models.model import FileKind, Model, all_models, is_built_in, model_of_database

if TYPE_CHECKING:
    from fourfold.archive.table_purge import PurgeRule
    from fourfold.store.store import Store


class DatabaseFile(NamedTuple):
    """A database of a store: its model and kind, its path, and its profile with the settings."""

    name: str
    model: Model[Any]
    kind: FileKind
    path: Path
    profile: Profile

    @property
    def prefix(self) -> str:
        """Prefix of the names of its archive tables."""
        return table_prefix(self.model, self.kind)

    @property
    def publication(self) -> Description:
        """Publication of the database; raises FormatError if its model publishes records itself."""
        if self.kind.publication is None:
            raise FormatError(f"{self.name!r} is not published as a database")
        return self.kind.publication


def table_prefix(model: Model[Any], kind: FileKind) -> str:
    """Return the prefix of the names of the archive tables of a kind of database."""
    return model.name if kind == model.kinds[0] else f"{model.name}.{kind.name}"


def purge_rules() -> list[PurgeRule]:
    """Return which rows of archive tables are purged, for every model of the registry."""
    from fourfold.archive.table_purge import rules_of  # noqa: PLC0415 - few stores publish

    return [
        rule
        for model in all_models()
        for kind in model.kinds
        if kind.publication is not None
        for rule in rules_of(table_prefix(model, kind), model.id_column, kind.publication)
    ]


def locate(
    store: Store, model: Model[Any], name: str, kind: FileKind | None = None
) -> DatabaseFile:
    """Return the file of a database, existing or not.

    The kind is that of the existing file, or `kind`, or the default of the model.
    """
    path = model.location.path(store.root, name)
    if kind is None:
        several = len(model.kinds) > 1
        kind = (model.kind_in(path) if several else None) or model.kinds[0]
    return DatabaseFile(name, model, kind, path, model.configure(kind.profile, store.settings))


def published_as(store: Store, name: str, kind: str) -> DatabaseFile:
    """Return the file of a published database, by its name and kind in its manifest.

    Raises:
        FormatError: no model of this version has such a database.
    """
    model = model_of_database(name)
    return locate(store, model, name, model.kind(kind))


def opened_for_reading(file: DatabaseFile) -> Database:
    """Open an existing database for reading only, also while another process writes it."""
    return Database.open(
        file.path,
        profile=file.profile,
        migrations=file.kind.migrations,
        sequences=file.kind.sequences,
        mode="r",
    )


@contextmanager
def subject_lent(store: Store, name: str) -> Iterator[Subject]:
    """Open a database for publishing, and close it again."""
    file = locate(store, model_of_database(name), name)
    with store.lent(file) as database:
        yield _subject(store, file, database)


def _subject(store: Store, file: DatabaseFile, database: Database) -> Subject:
    return Subject(
        file.name,
        file.kind.name,
        len(file.kind.migrations),
        database,
        file.publication,
        _contents(store, file.model),
        file.prefix,
        (file.model.id_column, file.model.location.id_of(file.name)),
        partial(_reopen, file.name, file.kind.name, file.path, file.profile)
        if is_built_in(file.model)
        else None,
    )


def _reopen(name: str, kind: str, path: Path, profile: Profile) -> tuple[Database, Description]:
    """Open a database of a store for reading, by what another process knows of it."""
    model = model_of_database(name)
    file = DatabaseFile(name, model, model.kind(kind), path, profile)
    return opened_for_reading(file), file.publication


def _contents(store: Store, model: Model[Any]) -> Contents | None:
    if model.blobs is None:
        return None
    blobs = model.blobs(store.root)
    return lambda digest: blobs.chunks(f"{PREFIX}{digest}")


def scratch_of(root: Path) -> Path:
    """Return the folder for files that are made for publishing."""
    return root / ".publishing"


def names(root: Path, models: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the names of the published databases of a store, of some models or of all."""
    for model in all_models():
        if model.published and (models is None or model.name in models):
            yield from model.location.names(root)


def tables_with_values() -> frozenset[str]:
    """Return the names of the published tables whose large values are separate objects."""
    return frozenset(
        table.name
        for model in all_models()
        for kind in model.kinds
        if kind.publication is not None
        for table in kind.publication.tables
        if table.content is not None
    )


def check_models(models: Sequence[str] | None) -> Sequence[str]:
    """Return the names of the models to publish; raise InvalidInput if one is unknown."""
    known = [model.name for model in all_models()]
    if models is None:
        return known
    unknown = sorted(set(models) - set(known))
    if unknown or not models:
        raise InvalidInput(
            f"{', '.join(unknown) or 'nothing'} is not a published model",
            hint=f"One of: {', '.join(known)}.",
        )
    return models
