"""Backup and restore of a whole store.

A backup is a folder that mirrors the store: each database as a standalone copy with its sidecar,
every other file unchanged, and `backup.json`, which lists them all with their checksums. Databases
are copied before other files: a blob is written before the row that refers to it, so the copy of a
database never refers to a file that the backup lacks. The folder gets its name only when it is
complete.

Each database is a consistent state of its own. With `one_point`, all of them are as of one time.
"""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fourfold._version import __version__
from fourfold.durability import sync_file
from fourfold.errors import AlreadyExists, CorruptData, FutureFormat, InvalidInput, NotFound
from fourfold.kernel import Sequence, Sidecar, inspection, sync_folder
from fourfold.kernel import verify_backup as verify_database
from fourfold.kernel.read_cut import ReadCut
from fourfold.models.model import find_kind
from fourfold.models.problem import Problem
from fourfold.store import layout
from fourfold.store.verification import CheckResult, Progress, VerifyReport

MANIFEST = "backup.json"
FORMAT = 1


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup, with its digest."""

    path: str
    size: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contents of a backup."""

    format: int
    created_at: str
    fourfold_version: str
    databases: dict[str, Sidecar]
    files: list[FileEntry]
    at: str = ""
    """Time as of which all databases are; empty if each is as of another time."""


class BackupReport(msgspec.Struct, frozen=True):
    """Result of a backup."""

    destination: str
    databases: int
    files: int
    bytes: int
    at: str = ""
    """Time as of which all databases are; empty if each is as of another time."""


class RestoreReport(msgspec.Struct, frozen=True):
    """Result of a restore."""

    root: str
    databases: int
    files: int
    advanced: bool


def back_up(
    root: Path,
    destination: Path,
    progress: Progress | None = None,
    *,
    one_point: bool = False,
) -> BackupReport:
    """Copy the store in `root` to the new folder `destination`; see `Store.backup`."""
    destination = destination.absolute()
    if destination.exists():
        raise AlreadyExists(f"{destination} already exists", hint="Back up to a new folder.")
    if destination.is_relative_to(root):
        raise InvalidInput(
            f"{destination} is inside the store", hint="Back up to a folder outside of the store."
        )
    partial = destination.with_name(f".{destination.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    try:
        partial.mkdir(mode=0o700, parents=True)
        manifest = _copy_all(root, partial, progress, one_point=one_point)
        _write_manifest(partial / MANIFEST, manifest)
        partial.rename(destination)
        sync_folder(destination.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    size = sum(database.size for database in manifest.databases.values())
    size += sum(file.size for file in manifest.files)
    return BackupReport(
        str(destination), len(manifest.databases), len(manifest.files), size, manifest.at
    )


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest of a backup; raise unless there is a sound one."""
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=BackupManifest)
    except FileNotFoundError:
        raise NotFound(f"{folder} is not a backup (it has no {MANIFEST})") from None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{path} is not a backup manifest: {error}") from error
    if manifest.format > FORMAT:
        raise FutureFormat(f"{path}: unknown format {manifest.format}, expected {FORMAT}")
    for name in (*manifest.databases, *(file.path for file in manifest.files)):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CorruptData(f"{path} refers to {name!r}, which is outside of the backup")
    return manifest


def verify_backup(folder: Path, progress: Progress | None = None) -> VerifyReport:
    """Verify that every part of a backup is present and intact."""
    manifest = read_manifest(folder)
    total = len(manifest.databases) + len(manifest.files)
    checked: list[CheckResult] = []
    for name, sidecar in manifest.databases.items():
        if progress is not None:
            progress(name, len(checked), total)
        checked.append(CheckResult(name, "database", _database_problems(folder / name, sidecar)))
    for entry in manifest.files:
        if progress is not None:
            progress(entry.path, len(checked), total)
        checked.append(CheckResult(entry.path, "file", _file_problems(folder / entry.path, entry)))
    if progress is not None:
        progress("", total, total)
    return VerifyReport(folder, tuple(checked))


def restore(
    backup: str | Path,
    root: str | Path,
    progress: Progress | None = None,
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> RestoreReport:
    """Restore a verified backup to the folder `root`.

    A missing or empty folder receives the whole store at once. Over an existing store each database
    is replaced under the rules of the kernel: never by one whose sequences are lower, unless
    `advance` raises them. Existing files with equal content stay.
    """
    folder, root = Path(backup), Path(root).absolute()
    verify_backup(folder, progress).raise_if_bad()
    manifest = read_manifest(folder)
    fresh = not root.exists() or not any(root.iterdir())
    target = root.with_name(f".{root.name}.restoring") if fresh else root
    if fresh:
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(mode=0o700, parents=True)
    for name, sidecar in manifest.databases.items():
        # Check all of them before the first is replaced.
        inspection.check_restore(
            folder / name,
            target / name,
            _counters(sidecar.model),
            advance=advance,
            replace_unreadable=replace_unreadable,
        )
    for name, sidecar in manifest.databases.items():
        inspection.restore(
            folder / name,
            target / name,
            _counters(sidecar.model),
            advance=advance,
            replace_unreadable=replace_unreadable,
        )
        if (kind := find_kind(sidecar.model)) is not None:
            model, _ = kind
            model.restored(target / name, layout.migration_backups(target, target / name))
    for entry in manifest.files:
        _restore_file(folder / entry.path, target / entry.path, entry)
    if fresh:
        if root.exists():
            root.rmdir()
        target.rename(root)
        sync_folder(root.parent)
    return RestoreReport(str(root), len(manifest.databases), len(manifest.files), advance)


def _copy_all(
    root: Path, partial: Path, progress: Progress | None, *, one_point: bool
) -> BackupManifest:
    with ExitStack() as stack:
        cut = None
        if one_point:
            _allow_open_files()
            cut = stack.enter_context(ReadCut(lambda: layout.databases(root)))
        databases = _copy_databases(root, partial, cut, progress)
    files = []
    others = layout.other_files(root)
    for number, path in enumerate(others):
        name = str(path.relative_to(root))
        if progress is not None:
            progress(name, number, len(others))
        target = partial / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        size, digest = _copy_durably(path, target)
        files.append(FileEntry(name, size, digest))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    at = "" if cut is None else cut.at
    return BackupManifest(FORMAT, now, __version__, databases, files, at)


def _copy_databases(
    root: Path, partial: Path, cut: ReadCut | None, progress: Progress | None
) -> dict[str, Sidecar]:
    databases: dict[str, Sidecar] = {}
    paths = layout.databases(root) if cut is None else cut.paths
    copy = inspection.back_up if cut is None else cut.back_up
    for number, path in enumerate(paths):
        name = str(path.relative_to(root))
        if progress is not None:
            progress(name, number, len(paths))
        databases[name] = copy(path, partial / name, _counters(inspection.model_of(path)))
    return databases


def _allow_open_files() -> None:
    """Raise the limit of open files as far as this process may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _counters(stored: str) -> tuple[Sequence, ...] | None:
    """Return the counters of a model's databases; None if the kernel's table has them."""
    kind = find_kind(stored)
    return None if kind is None else kind[1].sequences


def _copy_durably(source: Path, target: Path) -> tuple[int, str]:
    with source.open("rb") as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        sync_file(writing.fileno())
    return target.stat().st_size, inspection.checksum(target)


def _restore_file(source: Path, target: Path, entry: FileEntry) -> None:
    if target.exists() and inspection.checksum(target) == entry.sha256:
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    _copy_durably(source, partial)
    partial.rename(target)
    sync_folder(target.parent)


def _write_manifest(path: Path, manifest: BackupManifest) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        sync_file(file.fileno())
    sync_folder(path.parent)


def _database_problems(path: Path, expected: Sidecar) -> tuple[Problem, ...]:
    try:
        problems = verify_database(path)
    except (CorruptData, NotFound, FutureFormat) as error:
        return (Problem(error.message),)
    if problems != expected:
        return (Problem(f"{path}: sidecar does not match the backup manifest"),)
    return ()


def _file_problems(path: Path, entry: FileEntry) -> tuple[Problem, ...]:
    if not path.is_file():
        return (Problem(f"{path}: is missing"),)
    digest = inspection.checksum(path)
    if digest != entry.sha256:
        return (Problem(f"{path}: SHA-256 is {digest}, expected {entry.sha256}"),)
    return ()
