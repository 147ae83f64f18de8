"""The streams in the registry: one database, and the archive that publishes its streams."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fourfold.kernel import Database, Profile
from fourfold.models.model import FileKind, Location, Model, StoreContext, verify_file
from fourfold.models.problem import Problem
from fourfold.models.streams import incarnations
from fourfold.models.streams.archive.opener import ArchiveOpener
from fourfold.models.streams.database import MIGRATIONS, PROFILE
from fourfold.models.streams.streams import Streams, now_ms
from fourfold.settings import Settings

_KIND = FileKind(name="streams", profile=PROFILE, migrations=MIGRATIONS)
_LOCATION = Location("streams", "wal.sqlite")


def segments_folder(root: Path) -> Path:
    """Return the folder of segments on this disk; their records are in the log or published."""
    return root / _LOCATION.folder / ".segments"


def _open(database: Database, _kind: FileKind, context: StoreContext) -> Streams:
    archive = ArchiveOpener(database, segments_folder(context.root), context, now_ms)
    settled = context.writable and context.settings.archive.acknowledge == "published"
    return Streams(
        database,
        cold=archive.cold,
        publish_on_write=archive.settle if settled else None,
        unpublished=archive.failures,
        open_archive=archive.open,
    )


def _configure(profile: Profile, settings: Settings) -> Profile:
    return profile.with_(synchronous=settings.streams.synchronous)


def _verify(database: Database) -> list[Problem]:
    return Streams(database).verify()


def _restored(path: Path, migration_backups: Path) -> None:
    incarnations.reserve_in_file(path, now_ms(), migration_backups)


MODEL = Model(
    name="streams",
    kinds=(_KIND,),
    location=_LOCATION,
    open=_open,
    verify=partial(verify_file, kind=_KIND, check=_verify),
    configure=_configure,
    restored=_restored,
    tables="fourfold.query.streams.tables",
    pipeline="fourfold.pipeline.streams",
)
