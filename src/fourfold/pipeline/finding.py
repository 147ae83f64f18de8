"""Which files of which stores a read is about, found by name and looked at by nobody yet.

`root` is one store; `roots` a pattern that matches many. A folder that is no store is an error when
it was named, and is passed over when it merely matches a pattern, unless nothing matches at all.
No file is opened here, so that finding ten thousand costs a walk through their folders.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fourfold import config
from fourfold.errors import InvalidInput, NotFound
from fourfold.pipeline.tables import ModelTables


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be a database of the model. `bytes` counts its log too."""

    root: str
    path: str
    space: str
    bytes: int


def stores(root: str | None, roots: str | None) -> list[Path]:
    """The folders of the stores that the two options name: one of them must be given."""
    if (root is None) == (roots is None):
        raise InvalidInput(
            "a read needs the option root (one store) or roots (a pattern), and not both",
            hint="For example .option('root', 'my-store') or .option('roots', '/data/*').",
        )
    if root is not None:
        folder = Path(root).absolute()
        if not _is_store(folder):
            raise NotFound(
                f"{folder}: is not a Fourfold store (it has no {config.FILE_NAME})",
                hint="Check the path; `fourfold demo ROOT` makes a store to look at.",
            )
        return [folder]
    assert roots is not None
    matched = sorted(glob.glob(roots, recursive=True))  # noqa: PTH207 - the pattern is absolute
    found = [Path(each).absolute() for each in matched if _is_store(Path(each))]
    if not found:
        raise NotFound(
            f"{roots}: matches no Fourfold store",
            hint="The pattern names the folders of stores, for example /data/tenants/*.",
        )
    return found


def files(folders: Iterable[Path], tables: ModelTables, space: str | None = None) -> list[Found]:
    """The files of a model in these stores, in the order of their paths; with `space`, of one."""
    found = []
    for folder in folders:
        place = folder / tables.folder
        try:
            entries = sorted(os.scandir(place), key=lambda entry: _space(entry.name, tables))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = _space(entry.name, tables)
            if name == entry.name or name.startswith(".") or space not in {None, name}:
                continue
            size = _size(entry.path)
            if size is not None:
                found.append(Found(str(folder), entry.path, name, size))
    if space is not None and not found:
        raise NotFound(
            f"there is no space {space!r} in {', '.join(map(str, folders))}",
            hint="`fourfold space list ROOT` names them all.",
        )
    return found


def _space(name: str, tables: ModelTables) -> str:
    """The space that a file of this name holds. Spaces come in their own order: with the suffix at
    the end of their names, some would change places.
    """
    return name.removesuffix(tables.suffix)


def stands_still(path: str) -> bool:
    """Whether nobody can write the file: its folder is closed to all, and it has no log.

    Only such a file may be read without shared memory beside it. Where somebody could write, that
    would one day show a torn state.
    """
    folder = os.path.dirname(path)  # noqa: PTH120 - it runs for every file in a worker
    closed = not stat.S_IMODE(os.stat(folder).st_mode) & 0o222  # noqa: PTH116
    frozen = closed or bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return frozen and not os.path.exists(f"{path}-wal")  # noqa: PTH110


def is_closed(path: str) -> bool:
    """Return True if no process has left a log beside the file, and it can be written here."""
    log = f"{path}-wal"
    has_log = os.path.exists(log) and os.path.getsize(log) > 0  # noqa: PTH110, PTH202
    return not has_log and os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)  # noqa: PTH120


def _is_store(folder: Path) -> bool:
    return (folder / config.FILE_NAME).is_file()


def _size(path: str) -> int | None:
    """The bytes of the file and its log; None when it has gone or is no file."""
    total = 0
    for name in (path, f"{path}-wal"):
        try:
            facts = os.stat(name)  # noqa: PTH116 - it runs for every file
        except FileNotFoundError:
            if name == path:
                return None
            continue
        if name == path and not stat.S_ISREG(facts.st_mode):
            return None
        total += facts.st_size
    return total
