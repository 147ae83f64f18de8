"""The documents in the registry: a database for each space, of one of two kinds of history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fourfold.kernel import Database, Profile
from fourfold.models.documents.histories import HISTORIES
from fourfold.models.documents.publication import PUBLICATIONS
from fourfold.models.documents.space import Space
from fourfold.models.documents.validation import check_did
from fourfold.models.model import FileKind, Location, Model, StoreContext
from fourfold.models.problem import Problem
from fourfold.settings import Settings

_KINDS = tuple(
    FileKind(
        name=history.name,
        profile=history.profile,
        migrations=history.migrations,
        sequences=(history.seq,),
        publication=PUBLICATIONS[history.name],
    )
    for history in HISTORIES.values()
)
_LOCATION = Location("spaces", "did:*.sqlite", check_did)


def _open(database: Database, kind: FileKind, context: StoreContext) -> Space:
    did = database.path.name.removesuffix(_LOCATION.suffix)
    return Space(did, database, HISTORIES[kind.name], sql=context.sql)


def _verify(path: Path) -> Iterator[Problem]:
    from fourfold.models.documents.file_verify import verify_file  # noqa: PLC0415 - rare

    return verify_file(path)


def _close(space: Space) -> None:
    """End builds of indexes, which would otherwise use the files after they are closed."""
    space.indexes.builder.stop()


def _configure(profile: Profile, settings: Settings) -> Profile:
    return profile.with_(page_size=settings.documents.page_size)


MODEL = Model(
    name="documents",
    kinds=_KINDS,
    location=_LOCATION,
    open=_open,
    verify=_verify,
    close=_close,
    configure=_configure,
    id_column="space",
    tables="fourfold.query.documents.tables",
    pipeline="fourfold.pipeline.documents",
)
