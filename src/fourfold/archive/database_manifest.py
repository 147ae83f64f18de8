"""The manifest of a database: its publications, one after the other, and so every state that it can
be restored to.

    manifests/<hash of the name>.json             the newest publications, replaced whole
    databases/<hash>/pages/...json                older ones, never changed
    databases/<hash>/<table>/...parquet           rows, of one publication or of many; never changed
    databases/<hash>/retired/...json              objects that nothing needs any more, with sizes
    blobs/<2 digits>/<64 digits>.blob             large values, named by their content

A publication adds to the one that it names as `previous`: rows to put, keys to remove, small tables
as a whole. Its generation is never used twice. Who goes on from an earlier publication than the
newest leaves those between behind; they stay in the manifest's pages, and can be restored to.

The rows of many small publications may lie in one object, a *pack*: each publication names its part
of it. So merging takes no publication away; only retention does, and then `horizon` says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from fourfold import limits
from fourfold.archive import manifest_format
from fourfold.archive.retired_objects import Leaving, Retirement
from fourfold.errors import CorruptData, HistoryTruncated

FORMAT = 2
"""Of the first format there were no packs, and nothing was retired."""
MANIFESTS = "manifests/"
ROOT = "databases"
BLOBS = "blobs/"

PUT, GONE, WHOLE = "put", "gone", "whole"


class File(msgspec.Struct, frozen=True):
    """An object with rows of a table, and what is done with them: put, removed, or put in place of
    all others.
    """

    table: str
    action: str
    rows: int
    size_bytes: int
    """Of the object, also when it is a pack."""
    sha256: str
    pack: tuple[int, int] | None = None
    """The generations that the object has rows of, when they are several."""
    at: int = 0
    """The first row of this publication in the pack; `rows` follow."""


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
    level: int = 0
    """How often it was merged; those of level 0 have an object for each table and publication."""
    size_bytes: int = 0


class DatabaseManifest(msgspec.Struct, frozen=True):
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
    horizon: str = ""
    """The earliest point that it tells of, when earlier ones were given up."""
    retired: tuple[Retirement, ...] = ()

    @property
    def last(self) -> Publication:
        return self.publications[-1]


def name_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def manifest_key(name: str) -> str:
    return f"{MANIFESTS}{name_hash(name)}.json"


def page_key(name: str, page: Page) -> str:
    numbers = f"{page.first:08d}-{page.last:08d}"
    return f"{folder(name)}pages/{numbers}-{page.sha256[:16]}.json"


def file_key(name: str, generation: int, file: File) -> str:
    """The digest is a part of the name, so that an object of a name has one content."""
    label = f"{generation:08d}" if file.pack is None else "-".join(f"{n:08d}" for n in file.pack)
    digest = file.sha256[:16]
    return f"{folder(name)}{file.table}/{label}-{file.action}-{digest}.parquet"


def folder(name: str) -> str:
    """Where all objects of a database are but its manifest, and its large values."""
    return f"{ROOT}/{name_hash(name)}/"


def objects_of(name: str, publications: Iterable[Publication]) -> Iterator[Leaving]:
    """The objects with rows of publications; one of several is named several times."""
    for each in publications:
        for file in each.files:
            if file.sha256:
                yield Leaving(file_key(name, each.generation, file), file.size_bytes)


def blob_key(digest: str) -> str:
    """The same that a blob store on these objects would use."""
    return f"{BLOBS}{digest[:2]}/{digest}.blob"


_PAGE = msgspec.json.Decoder(tuple[Publication, ...])
_MANIFEST = msgspec.json.Decoder(DatabaseManifest)


def encode(manifest: DatabaseManifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode(data: bytes, what: str) -> DatabaseManifest:
    """The manifest in `data`; an error when it is damaged, or of a later Fourfold."""
    manifest = manifest_format.read(data, _MANIFEST, FORMAT, what)
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


def add(
    manifest: DatabaseManifest, publication: Publication
) -> tuple[DatabaseManifest, dict[str, bytes]]:
    """The manifest with one more publication; and the pages, by key, that have to be there before
    it is.
    """
    held, pages = manifest.publications, manifest.pages
    written: dict[str, bytes] = {}
    if len(held) >= limits.PUBLISH_ENTRIES:
        page, data = page_of(held)
        written[page_key(manifest.name, page)] = data
        held, pages = (), (*pages, page)
    added = msgspec.structs.replace(
        manifest,
        format=FORMAT,
        pages=pages,
        publications=(*held, publication),
        newest=publication.generation,
    )
    return added, written


def page_of(publications: tuple[Publication, ...], level: int = 0) -> tuple[Page, bytes]:
    """A page with publications, and its bytes."""
    data = msgspec.json.encode(publications)
    first, last = publications[0].generation, publications[-1].generation
    return Page(first, last, hashlib.sha256(data).hexdigest(), level, len(data)), data


def same_step(one: Publication, other: Publication | None) -> bool:
    """Whether two are the same publication, wherever its rows lie."""
    if other is None:
        return False
    return msgspec.structs.replace(one, files=other.files, previous=other.previous) == other


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


def shown_at(found: dict[int, Publication], point: str | None) -> Publication | None:
    """The publication that a point of the store shows, also one that says that there is nothing."""
    seen = [each for each in found.values() if point is None or each.point <= point]
    return max(seen, key=lambda each: each.generation, default=None)


def at_point(
    found: dict[int, Publication], point: str | None, horizon: str = ""
) -> Publication | None:
    """The publication that a point of the store shows; None when there was nothing yet. Without a
    point it is the newest. What lies before the horizon cannot be told.
    """
    if point is not None and point < horizon:
        raise HistoryTruncated(
            f"the point {point} was given up; the earliest is {horizon}",
            hint="`fourfold publish ROOT --points` lists the points that there are.",
        )
    newest = shown_at(found, point)
    return None if newest is None or newest.absent else newest
