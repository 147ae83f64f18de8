"""Discover the files that a read covers, by name, without opening them.

`root` is one store; `roots` is a pattern that matches many. A folder that is not a store is an
error if it was named, and is skipped if it only matches a pattern, unless nothing matches at all.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fourfold import settings
from fourfold.errors import (
    InvalidInput,
    NotFound,
)
from fourfold.pipeline.file_facts import file_status
from fourfold.query.tables import ModelTables


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file that may be a database of the model; `bytes` includes its WAL."""

    root: str
    path: str
    space: str
    bytes: int
    state: str | None
    """Changes whenever the file or its WAL does; None if it may change unseen."""


def find_stores(root: str | None, roots: str | None) -> list[Path]:
    """Return the folders of the stores that `root` or `roots` selects; pass exactly one."""
    if (root is None) == (roots is None):
        raise InvalidInput(
            "pass either option 'root' (one store) or option 'roots' (a pattern)",
            hint="For example .option('root', 'my-store') or .option('roots', '/data/*').",
        )
    if root is not None:
        folder = Path(root).absolute()
        if not _is_store(folder):
            raise NotFound(
                f"{folder}: not a Fourfold store (no {settings.FILE_NAME})",
                hint="Check the path; `fourfold demo ROOT` creates a sample store.",
            )
        return [folder]
    assert roots is not None
    matched = sorted(glob.glob(roots, recursive=True))  # noqa: PTH207 - the pattern is absolute
    folders = [Path(name).absolute() for name in matched if _is_store(Path(name))]
    if not folders:
        raise NotFound(
            f"{roots}: no Fourfold store matches",
            hint="Give a pattern of store folders, for example /data/tenants/*.",
        )
    return folders


def find_files(
    folders: Iterable[Path], tables: ModelTables, space: str | None = None
) -> list[StoreFile]:
    """Return the files of a model in these stores, ordered by path; `space` selects one."""
    store_files = []
    for folder in folders:
        root, model_folder = str(folder), folder / tables.folder
        try:
            entries = sorted(os.scandir(model_folder), key=lambda entry: _space(entry.name, tables))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = _space(entry.name, tables)
            if name == entry.name or name.startswith(".") or space not in {None, name}:
                continue
            status = file_status(entry.path)
            if status is not None:
                store_files.append(StoreFile(root, entry.path, name, *status))
    if space is not None and not store_files:
        raise NotFound(
            f"{', '.join(map(str, folders))}: unknown space {space!r}",
            hint="Run `fourfold space list ROOT` to list the spaces.",
        )
    return store_files


def _space(name: str, tables: ModelTables) -> str:
    """Return the space of a file name. Sorting by it gives the order of spaces; sorting by the file
    name would not, because of the suffix.
    """
    return name.removesuffix(tables.suffix)


def _is_store(folder: Path) -> bool:
    return (folder / settings.FILE_NAME).is_file()
