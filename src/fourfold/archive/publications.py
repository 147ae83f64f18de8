"""The manifest of a database: its publications, one after the other, and so every state that it can
be restored to.

    manifests/<hash of the name>.json             the newest publications, replaced whole
    databases/<hash>/pages/...json                older ones, never changed
    databases/<hash>/<table>/...parquet           rows, never changed
    blobs/<2 digits>/<64 digits>.blob             large values, named by their content

A publication adds to the one that it names as `previous`: rows to put, keys to remove, small tables
as a whole. Its generation is never used twice. Who goes on from an earlier publication than the
newest leaves those between behind; they stay in the manifest's pages, and can be restored to.
"""

from __future__ import annotations

import hashlib

import msgspec

from fourfold import limits
from fourfold.archive import manifest_text
from fourfold.errors import CorruptData

FORMAT = 1
MANIFESTS = "manifests/"
ROOT = "databases"
POINTS = "points"

PUT, GONE, WHOLE = "put", "gone", "whole"


class File(msgspec.Struct, frozen=True):
    """An object with rows of a table, and what is done with them: put, removed, or put in place of
    all others.
    """

    table: str
    action: str
    rows: int
    size_bytes: int
    sha256: str


class Publication(msgspec.Struct, frozen=True):
    """One step of a database's published history."""

    generation: int
    previous: int
    """The generation that it follows; 0 for none."""
    point: str
    """The point of the store that it belongs to. Points sort by their names."""
    at: str
    position: int
    """The newest position of the log that it has."""
    files: tuple[File, ...] = ()
    absent: bool = False
    """There is no such database at this point."""


class Page(msgspec.Struct, frozen=True):
    """An object with older publications."""

    first: int
    last: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The published history of one database. The order of the fields is that of the JSON."""

    format: int
    token: str
    name: str
    model: str
    migrations: int
    """How many migrations the database had; an older Fourfold cannot restore it."""
    node: str
    newest: int
    """The generation that a restore gives, unless it is asked for another one."""
    pages: tuple[Page, ...] = ()
    publications: tuple[Publication, ...] = ()

    @property
    def last(self) -> Publication:
        return self.publications[-1]


def name_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def manifest_key(name: str) -> str:
    return f"{MANIFESTS}{name_hash(name)}.json"


def page_key(name: str, page: Page) -> str:
    numbers = f"{page.first:08d}-{page.last:08d}"
    return f"{ROOT}/{name_hash(name)}/pages/{numbers}-{page.sha256[:16]}.json"


def file_key(name: str, generation: int, file: File) -> str:
    return file_key_of(name, generation, file.table, file.action, file.sha256)


def file_key_of(name: str, generation: int, table: str, action: str, digest: str) -> str:
    """The digest is a part of the name, so that an object of a name has one content."""
    return f"{ROOT}/{name_hash(name)}/{table}/{generation:08d}-{action}-{digest[:16]}.parquet"


def blob_key(digest: str) -> str:
    """The same that a blob store on these objects would use."""
    return f"blobs/{digest[:2]}/{digest}.blob"


_PAGE = msgspec.json.Decoder(tuple[Publication, ...])
_MANIFEST = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode(data: bytes, what: str) -> Manifest:
    """The manifest in `data`; an error when it is damaged, or of a later Fourfold."""
    manifest = manifest_text.read(data, _MANIFEST, FORMAT, what)
    if not manifest.publications or manifest.newest != manifest.last.generation:
        raise CorruptData(f"{what}: its newest publication is not {manifest.newest}")
    return manifest


def decode_page(data: bytes, page: Page, what: str) -> tuple[Publication, ...]:
    if hashlib.sha256(data).hexdigest() != page.sha256:
        raise CorruptData(f"{what}: is not the page that the manifest names")
    try:
        return _PAGE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what}: is no page of a manifest: {error}") from error


def add(manifest: Manifest, publication: Publication) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest with one more publication; and the pages, by key, that have to be there before
    it is.
    """
    held, pages = manifest.publications, manifest.pages
    written: dict[str, bytes] = {}
    if len(held) >= limits.PUBLISH_ENTRIES:
        data = msgspec.json.encode(held)
        digest = hashlib.sha256(data).hexdigest()
        page = Page(held[0].generation, held[-1].generation, digest)
        written[page_key(manifest.name, page)] = data
        held, pages = (), (*pages, page)
    added = msgspec.structs.replace(
        manifest,
        pages=pages,
        publications=(*held, publication),
        newest=publication.generation,
    )
    return added, written


def chain(found: dict[int, Publication], generation: int, what: str) -> list[Publication]:
    """The publications that make up a generation, oldest first."""
    steps: list[Publication] = []
    while generation:
        step = found.get(generation)
        if step is None or step.previous >= generation:
            raise CorruptData(f"{what}: publication {generation} is missing")
        steps.append(step)
        generation = step.previous
    steps.reverse()
    return steps


def at_point(found: dict[int, Publication], point: str | None) -> Publication | None:
    """The publication that a point of the store shows; None when there was nothing yet. Without a
    point it is the newest.
    """
    seen = [each for each in found.values() if point is None or each.point <= point]
    newest = max(seen, key=lambda each: each.generation, default=None)
    return None if newest is None or newest.absent else newest
