"""The sessions in the registry: one database of events, and a folder of large payloads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fourfold.blobs import FolderBlobs
from fourfold.kernel import Database, Profile
from fourfold.models.model import FileKind, Location, Model, StoreContext, verify_file
from fourfold.models.problem import Problem, to_problems
from fourfold.models.sessions.database import MIGRATIONS, POSITION, PROFILE
from fourfold.models.sessions.publication import PUBLICATION
from fourfold.models.sessions.sessions import Sessions
from fourfold.models.sessions.sqlite_log import SqliteLog
from fourfold.settings import Settings

_KIND = FileKind(
    name="sessions",
    profile=PROFILE,
    migrations=MIGRATIONS,
    sequences=(POSITION,),
    publication=PUBLICATION,
)
_LOCATION = Location("sessions", "events.db")
_BLOBS = "blobs"


def _blobs(root: Path) -> FolderBlobs:
    return FolderBlobs(root / _LOCATION.folder / _BLOBS)


def _open(database: Database, _kind: FileKind, context: StoreContext) -> Sessions:
    return Sessions(SqliteLog(database), files=_blobs(context.root))


def _configure(profile: Profile, settings: Settings) -> Profile:
    return profile.with_(synchronous=settings.sessions.synchronous)


def _verify(database: Database) -> list[Problem]:
    from fourfold.models.sessions.verify import contents  # noqa: PLC0415 - rare

    blobs = FolderBlobs(database.path.parent / _BLOBS)
    return to_problems(contents(SqliteLog(database), blobs))


MODEL = Model(
    name="sessions",
    kinds=(_KIND,),
    location=_LOCATION,
    open=_open,
    verify=partial(verify_file, kind=_KIND, check=_verify),
    close=Sessions.close,
    configure=_configure,
    blobs=_blobs,
    tables="fourfold.query.sessions.tables",
    pipeline="fourfold.pipeline.sessions",
)
