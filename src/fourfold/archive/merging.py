"""Merging publications: what many small ones have put into objects of their own lies in few then.

    pages ──> packs, uploaded ──> a page that names them ──> replace the manifest ──> record

A page of the manifest is merged as soon as it is full, and so are 16 pages of one level, into one
of the next: a row is written again once for each level. Every publication stays: it names its rows
in the packs, so each point can be restored to as before. The old objects and pages are listed as
retired before the manifest lets go of them, and deleted after their time of grace. The manifest is
replaced once, on the condition of its version.
"""

from __future__ import annotations

import shutil
from itertools import groupby
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import publications
from fourfold.archive.packing import Packer
from fourfold.archive.publications import Manifest, Page, Publication
from fourfold.archive.publishing import DatabasePublisher, Subject, read_page
from fourfold.archive.retirement import Leaving, Retirement, retire
from fourfold.archive.retrying import Retries
from fourfold.archive.uploads import put_once, upload_of
from fourfold.kernel import faults
from fourfold.objects import ObjectStore


class Merged(NamedTuple):
    """What became of small publications."""

    name: str
    publications: int
    """That lie in other objects now."""
    retired: int
    """Objects that are not needed any more."""
    packs: int
    """Objects that took their place."""


class _Group(NamedTuple):
    """Neighbouring pages that become one, by their numbers; the end is behind the last."""

    start: int
    end: int
    level: int


class Merger:
    """Merges what is published of one database."""

    def __init__(
        self, subject: Subject, objects: ObjectStore, retries: Retries | None = None
    ) -> None:
        self._subject = subject
        self._objects = objects
        self._retries = retries or Retries()

    def merge(self, now_ms: int, *, everything: bool = False) -> Merged | None:
        """Merge what is due; with `everything`, also the newest publications, if they are a few.
        None when nothing was.
        """
        folder = self._subject.folder.with_name(self._subject.folder.name + ".packs")
        publisher = DatabasePublisher(self._subject, self._objects, self._retries)
        packer = Packer(self._subject.name, self._objects, folder, self._retries)
        merging = _Merging(self._objects, packer, self._retries, now_ms)
        try:
            changed = publisher.rewrite(lambda manifest: merging.run(manifest, everything))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return merging.done(self._subject.name) if changed else None


class _Merging:
    def __init__(self, objects: ObjectStore, packer: Packer, retries: Retries, now_ms: int) -> None:
        self._objects = objects
        self._packer = packer
        self._retries = retries
        self._now_ms = now_ms
        self._known: dict[Page, tuple[Publication, ...]] = {}
        self._leaving: set[Leaving] = set()
        self._count = 0
        self._retired = 0

    def done(self, name: str) -> Merged:
        return Merged(name, self._count, self._retired, self._packer.packs)

    def run(self, manifest: Manifest, everything: bool) -> Manifest | None:
        """The manifest with larger pages, whose objects are there."""
        held, pages = manifest.publications, manifest.pages
        if everything and len(held) > limits.PUBLISH_MERGE_LEAST:
            page, _ = publications.page_of(held[:-1])
            self._known[page] = held[:-1]
            held, pages = held[-1:], (*pages, page)
        before = pages
        while (group := due(pages)) is not None:
            merged = self._merged(manifest.name, pages[group.start : group.end], group.level)
            pages = (*pages[: group.start], merged, *pages[group.end :])
        if pages == before:
            return None
        for page in pages:
            if page not in manifest.pages:
                _, data = publications.page_of(self._known[page], page.level)
                key = publications.page_key(manifest.name, page)
                put_once(self._objects, upload_of(key, data), self._retries)
        retired = self._retire(manifest, pages)
        if faults.armed:
            faults.hit("archive.retired.listed")
        return msgspec.structs.replace(
            manifest, pages=pages, publications=held, retired=(*manifest.retired, *retired)
        )

    def _merged(self, name: str, pages: tuple[Page, ...], level: int) -> Page:
        steps = tuple(each for page in pages for each in self._steps(name, page))
        packed = self._packer.pack(steps)
        self._leaving |= set(publications.objects_of(name, steps))
        self._leaving -= set(publications.objects_of(name, packed))
        page, _ = publications.page_of(packed, level)
        self._known[page] = packed
        self._count += len(packed)
        return page

    def _steps(self, name: str, page: Page) -> tuple[Publication, ...]:
        if page not in self._known:
            self._known[page] = read_page(self._objects, name, page, self._retries)
        return self._known[page]

    def _retire(self, manifest: Manifest, pages: tuple[Page, ...]) -> tuple[Retirement, ...]:
        gone = [page for page in manifest.pages if page not in pages]
        keys = {Leaving(publications.page_key(manifest.name, p), p.size_bytes) for p in gone}
        leaving = self._leaving | keys
        self._retired = len(leaving)
        folder = publications.folder(manifest.name)
        return retire(self._objects, folder, leaving, self._now_ms, self._retries)


def due(pages: tuple[Page, ...]) -> _Group | None:
    """The first pages that should be one: those that were never merged, and as many of a level as
    make one of the next.
    """
    at = 0
    for level, found in groupby(pages, key=lambda page: page.level):
        count = len(list(found))
        enough = level == 0 or (count >= limits.PUBLISH_FANOUT and level < limits.PUBLISH_LEVELS)
        if enough:
            return _Group(at, at + min(count, limits.PUBLISH_FANOUT), level + 1)
        at += count
    return None
