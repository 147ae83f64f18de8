"""Manifest of a database in format 1: its publications in order, each of which can be restored."""

from __future__ import annotations

import hashlib

import msgspec

from fourfold.archive import manifest_format
from fourfold.errors import CorruptData, HistoryTruncated

FORMAT = 2
"""Format of manifests; the first one had no packs."""
MANIFESTS = "manifests/"
ROOT = "databases"


class ManifestFile(msgspec.Struct, frozen=True):
    """An object with rows of a table, and the action: put, gone, or whole."""

    table: str
    action: str
    rows: int
    size_bytes: int
    """Size of the object, also if it is a pack."""
    sha256: str
    pack: tuple[int, int] | None = None
    """First and last generation in the object, if it is a pack."""
    at: int = 0
    """First row of this publication in the pack; `rows` follow."""


class Publication(msgspec.Struct, frozen=True):
    """One step of a database's published history."""

    generation: int
    previous: int
    """Generation of the previous publication; 0 for none."""
    point: str
    """Restore point of the publication; ids of points sort by time."""
    at: str
    position: int
    """Newest position of the log in the publication."""
    files: tuple[ManifestFile, ...] = ()
    absent: bool = False
    """True if the database does not exist at this point."""


class ManifestPage(msgspec.Struct, frozen=True):
    """An object with older publications."""

    first: int
    last: int
    sha256: str
    level: int = 0
    """How often the page was merged; level 0 has an object for each table and publication."""
    size_bytes: int = 0


class DatabaseManifest(msgspec.Struct, frozen=True):
    """Published history of one database. The order of the fields is that of the JSON."""

    format: int
    token: str
    name: str
    model: str
    migrations: int
    """Number of migrations of the database; an older Fourfold cannot restore it."""
    node: str
    newest: int
    """Generation that a restore uses by default."""
    pages: tuple[ManifestPage, ...] = ()
    publications: tuple[Publication, ...] = ()
    horizon: str = ""
    """Oldest restore point, if earlier ones were removed."""

    @property
    def last(self) -> Publication:
        """The newest publication."""
        return self.publications[-1]


def name_hash(name: str) -> str:
    """Return the part of object keys that stands for a database."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def manifest_key(name: str) -> str:
    """Return the key of the manifest of a database."""
    return f"{MANIFESTS}{name_hash(name)}.json"


def page_key(name: str, page: ManifestPage) -> str:
    """Return the key of a page of a manifest."""
    numbers = f"{page.first:08d}-{page.last:08d}"
    return f"{folder(name)}pages/{numbers}-{page.sha256[:16]}.json"


def file_key(name: str, generation: int, file: ManifestFile) -> str:
    """Return the key of a file; it contains the digest, so that a key has one content."""
    label = f"{generation:08d}" if file.pack is None else "-".join(f"{n:08d}" for n in file.pack)
    digest = file.sha256[:16]
    return f"{folder(name)}{file.table}/{label}-{file.action}-{digest}.parquet"


def folder(name: str) -> str:
    """Return the folder of a database's objects, except its manifest and its large values."""
    return f"{ROOT}/{name_hash(name)}/"


_PAGE = msgspec.json.Decoder(tuple[Publication, ...])
_MANIFEST = msgspec.json.Decoder(DatabaseManifest)


def decode(data: bytes, what: str) -> DatabaseManifest:
    """Decode a manifest; raise if it is damaged or from a later version."""
    manifest = manifest_format.read(data, _MANIFEST, FORMAT, what)
    if not manifest.publications or manifest.newest != manifest.last.generation:
        raise CorruptData(f"{what}: expected publication {manifest.newest} as the newest")
    return manifest


def decode_page(data: bytes, page: ManifestPage, what: str) -> tuple[Publication, ...]:
    """Parse a page of a manifest; raise CorruptData unless it matches its digest."""
    if hashlib.sha256(data).hexdigest() != page.sha256:
        raise CorruptData(f"{what} does not match the digest in the manifest")
    try:
        return _PAGE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what} is not a manifest page: {error}") from error


def chain(found: dict[int, Publication], generation: int, what: str) -> list[Publication]:
    """Return the publications that lead to a generation, oldest first."""
    steps: list[Publication] = []
    while generation:
        step = found.get(generation)
        if step is None or step.previous >= generation:
            raise CorruptData(f"{what}: publication {generation} is missing")
        steps.append(step)
        generation = step.previous
    steps.reverse()
    return steps


def shown_at(found: dict[int, Publication], point: str | None) -> Publication | None:
    """Return the publication at a restore point, even if it marks the database as absent."""
    seen = [item for item in found.values() if point is None or item.point <= point]
    return max(seen, key=lambda publication: publication.generation, default=None)


def at_point(
    found: dict[int, Publication], point: str | None, horizon: str = ""
) -> Publication | None:
    """Return the publication at a restore point, by default the newest; None if there was none.

    Raises HistoryTruncated below the horizon.
    """
    if point is not None and point < horizon:
        raise HistoryTruncated(
            f"restore point {point} was removed; the oldest is {horizon}",
            hint="List the restore points: `fourfold publish ROOT --points`.",
        )
    newest = shown_at(found, point)
    return None if newest is None or newest.absent else newest
