"""Layout of a store's folder.

    ROOT/
      fourfold.toml               settings; the version of this layout
      spaces/<did>.sqlite         one database per space of documents
      sessions/events.db          the events of all sessions
      sessions/blobs/             large payloads, one file each
      graphs/backend.db           the graphs of all apps
      streams/wal.sqlite          the log of all streams
      streams/.segments/          segments to upload, or downloaded
      databases/<name>.sqlite     your own databases
      objects/                    the default object store: a local folder
      backups/migrations/         backups of databases, taken before a migration

Where the databases of a model are is part of its description in `fourfold.models.model`. A database
is recognised by its suffix, so that a tool finds all of them, including those of unknown models and
those with a damaged header.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fourfold.errors import InvalidInput

DATABASES = "databases"
BACKUPS = "backups"
_DATABASE_SUFFIXES = (".sqlite", ".db")
_COMPANIONS = ("-wal", "-shm", ".lock")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")


def database_path(root: Path, name: str) -> Path:
    """Return the path of the user's database `name`, after checking the name."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise InvalidInput(
            f"{name!r} is not a valid database name",
            hint="Use 1 to 128 lower-case letters, digits, '.', '_' and '-'; start with a "
            "letter or a digit.",
        )
    return root / DATABASES / f"{name}.sqlite"


def migration_backups(root: Path, path: Path) -> Path:
    """Return the folder for backups of the database `path` before its migrations."""
    return root / BACKUPS / "migrations" / path.parent.relative_to(root)


def pipeline_folder(root: Path) -> Path:
    """Return the pipeline's scratch folder, with staged files and locks.

    Its name begins with a dot, so backups skip it.
    """
    return root / ".pipeline"


def is_database(path: Path) -> bool:
    """Return True if the name is that of a database; the content is not checked."""
    return path.suffix in _DATABASE_SUFFIXES


def databases(root: Path) -> list[Path]:
    """Return every database below `root`, sorted by path."""
    return [path for path in _files(root) if is_database(path)]


def other_files(root: Path) -> list[Path]:
    """Return every file below `root` that is neither a database nor one of its companions."""
    return [path for path in _files(root) if not is_database(path) and not is_companion(path)]


def is_companion(path: Path) -> bool:
    """Return True if the file belongs to a database: log, shared memory, lock, or replaced copy."""
    return path.name.endswith(_COMPANIONS) or ".replaced-" in path.name


def is_unfinished(path: Path) -> bool:
    """Return True if the file is an interrupted write, or scratch space of a backend."""
    return path.name.startswith(".") or path.name.endswith((".partial", ".tmp"))


def _files(root: Path) -> Iterator[Path]:
    """Yield the files with state.

    Folders whose name starts with a dot are scratch space, and backups before migrations are copies
    of earlier states.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if Path(folder) == root and BACKUPS in folders:
            folders.remove(BACKUPS)
        for name in sorted(names):
            path = Path(folder, name)
            if not is_unfinished(path) and not path.is_symlink():
                yield path
