"""Packing: the rows of many small publications into few objects.

A pack has the rows of one table that some publications put, or removed, or carried as a whole, one
publication after the other. Each publication names its part, so every one of them can still be
restored to. Objects that are large enough stay as they are; packs are packed again with others,
without rows that no publication names any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import publications
from fourfold.archive.parquet import arrow
from fourfold.archive.publications import File, Publication
from fourfold.archive.retrying import Retries
from fourfold.archive.rowfiles import read_table, write_table
from fourfold.archive.uploads import get_checked, put_once, upload_of_file
from fourfold.errors import CorruptData
from fourfold.kernel import faults
from fourfold.objects import ObjectStore

_Place = tuple[int, int]
"""A publication, and one of its files, by their numbers."""


class _Part(NamedTuple):
    """Rows of one publication in an object."""

    place: _Place
    generation: int
    file: File


class _Held(NamedTuple):
    """The rows that go into the next pack, and whose they are."""

    tables: list[Any]
    parts: list[_Part]
    sources: set[str]


class Packer:
    """Packs the files of publications of one database."""

    def __init__(self, name: str, objects: ObjectStore, folder: Path, retries: Retries) -> None:
        self._name = name
        self._objects = objects
        self._folder = folder
        self._retries = retries
        self.packs = 0
        """How many were made."""

    def pack(self, steps: Sequence[Publication]) -> tuple[Publication, ...]:
        """The publications with their rows in as few objects as may be, which are uploaded."""
        files = [list(step.files) for step in steps]
        for parts in _by_table(steps):
            for place, file in self._packed(parts):
                files[place[0]][place[1]] = file
        return tuple(
            msgspec.structs.replace(step, files=tuple(found))
            for step, found in zip(steps, files, strict=True)
        )

    def _packed(self, parts: list[_Part]) -> Iterator[tuple[_Place, File]]:
        held = _Held([], [], set())
        size = 0
        for key, mine in _by_object(self._name, parts):
            table = read_table(self._get(key, mine[0].file), key)
            if held.tables and (
                held.tables[0].schema != table.schema
                or size + table.nbytes > limits.PUBLISH_PACK_BYTES
            ):
                yield from self._flushed(held)
                held, size = _Held([], [], set()), 0
            for part in mine:
                held.tables.append(_slice(table, part.file, key))
                held.parts.append(part)
            held.sources.add(key)
            size += table.nbytes
        yield from self._flushed(held)

    def _flushed(self, held: _Held) -> Iterator[tuple[_Place, File]]:
        """Nothing, where there is nothing to be put together."""
        if len(held.sources) < 2:
            return
        pa, _ = arrow()
        first = held.parts[0].file
        generations = [part.generation for part in held.parts]
        span = min(generations), max(generations)
        written = write_table(
            pa.concat_tables(held.tables),
            self._folder,
            f"{self._name}, {first.table}",
            lambda digest: f"{first.action}-{digest}.parquet",
        )
        try:
            whole = File(
                first.table, first.action, 0, written.size_bytes, written.digest, pack=span
            )
            key = publications.file_key(self._name, 0, whole)
            upload = upload_of_file(key, written.path, written.size_bytes, written.digest)
            put_once(self._objects, upload, self._retries)
        finally:
            written.path.unlink(missing_ok=True)
        if faults.armed:
            faults.hit("archive.pack.uploaded")
        self.packs += 1
        at = 0
        for part in held.parts:
            yield part.place, msgspec.structs.replace(whole, rows=part.file.rows, at=at)
            at += part.file.rows

    def _get(self, key: str, file: File) -> bytes:
        return get_checked(self._objects, key, file.sha256, self._retries)


def _by_table(steps: Sequence[Publication]) -> Iterator[list[_Part]]:
    """The small files of each table and action, in the order of their publications."""
    found: dict[tuple[str, str], list[_Part]] = {}
    for number, step in enumerate(steps):
        for at, file in enumerate(step.files):
            if file.sha256 and 2 * file.size_bytes <= limits.PUBLISH_PACK_BYTES:
                part = _Part((number, at), step.generation, file)
                found.setdefault((file.table, file.action), []).append(part)
    yield from found.values()


def _by_object(name: str, parts: list[_Part]) -> Iterator[tuple[str, list[_Part]]]:
    """Parts that lie in one object, together: a pack is fetched once."""
    found: dict[str, list[_Part]] = {}
    for part in parts:
        found.setdefault(publications.file_key(name, part.generation, part.file), []).append(part)
    yield from found.items()


def _slice(table: Any, file: File, key: str) -> Any:
    if file.at + file.rows > table.num_rows:
        raise CorruptData(f"{key}: has {table.num_rows} rows, and not {file.at + file.rows}")
    return table.slice(file.at, file.rows)
