"""Restore points of a store: store-wide sets of publications.

    points/list.json              the newest points, and references to pages; replaced as a whole
    points/<id>.json              contents of a point; never changed
    points/pages/...json          older parts of the list; never changed
    points/packs/...json          the same, including contents of points
    points/retired/...json        objects that the list does not refer to

The id of a point starts with its time, and is greater than that of every earlier point. The oldest
points are removed first; the first kept point then contains all positions, not only changed ones.

A take-over continues from an older publication than the newest. Those in between stay in the
manifest, and their restore points still work. One publication without rows records from where the
history continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.archive.database_manifest import Publication
from fourfold.archive.publisher import PublishTime
from fourfold.archive.restore import PublishedHistory
from fourfold.archive.retired_objects import (
    RetiredObject,
    Retirement,
    UnusedObject,
    delete,
    listed,
    over,
    retire,
)
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    NotFound,
    PreconditionFailed,
    PublisherFenced,
)
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

PUBLISH_POINTS_PAGE: Final = 4_096
"""Restore points of one full page."""

LIST = "points/list.json"
_PACKS = "points/packs/"
FORMAT = 1
T = TypeVar("T")
_POINT = re.compile(r"points/[0-9T.]+Z-[0-9a-f]+\.json")
_TIME = "%Y%m%dT%H%M%S.%f"


class Place(msgspec.Struct, frozen=True):
    """Position of a database or a stream at a restore point."""

    generation: int
    position: int
    incarnation: str = ""
    """Incarnation of the stream; empty for databases."""


class PointInfo(msgspec.Struct, frozen=True):
    """A restore point in the list."""

    id: str
    at: str
    """Time of completion, in UTC."""
    started_ms: int
    sha256: str
    databases: int
    """Number of databases and streams that advanced since the previous point."""
    streams: int = 0
    restored: str | None = None
    """The restore point from which the store continued."""
    whole: bool = False
    """It contains every stream, because earlier points were removed."""

    @property
    def time(self) -> datetime:
        """Time of the state that the point has at least: that at which it was begun."""
        return time_of(self.started_ms)


def time_of(started_ms: int) -> datetime:
    """Return the time of a point; commits have microseconds, so it is the end of a millisecond."""
    second = datetime.fromtimestamp(started_ms // 1_000, UTC)
    return second + timedelta(milliseconds=started_ms % 1_000, microseconds=999)


class RestorePoint(msgspec.Struct, frozen=True):
    """Contents of a restore point: only changes since the previous one."""

    id: str
    at: str
    started_ms: int
    databases: dict[str, Place] = {}
    streams: dict[str, Place] = {}
    restored: str | None = None
    whole: bool = False


class _Page(msgspec.Struct, frozen=True):
    first: str
    last: str
    sha256: str
    packed: bool = False
    size_bytes: int = 0


class _PackedPoints(msgspec.Struct, frozen=True):
    """A restore point in a pack, with its list entry."""

    info: PointInfo
    point: RestorePoint


class _List(msgspec.Struct, frozen=True):
    format: int = FORMAT
    pages: tuple[_Page, ...] = ()
    points: tuple[PointInfo, ...] = ()
    retired: tuple[Retirement, ...] = ()


class Points:
    """The restore points in an object store."""

    def __init__(self, objects: ObjectStore, retries: Retries | None = None) -> None:
        self._objects = objects
        self._retries = retries or Retries()
        self._packed: dict[str, RestorePoint] = {}

    def all(self) -> list[PointInfo]:
        """Return every restore point, oldest first."""
        found, _ = self._read()
        return [*(info for page in found.pages for info in self._page(page)), *found.points]

    def newest(self) -> PointInfo | None:
        found, _ = self._read()
        if found.points or not found.pages:
            return found.points[-1] if found.points else None
        return self._page(found.pages[-1])[-1]

    def _page(self, page: _Page) -> list[PointInfo]:
        key = _page_key(page)
        data = get_checked(self._objects, key, page.sha256, self._retries)
        if not page.packed:
            return list(_decoded(data, tuple[PointInfo, ...], key))
        packed = _decoded(data, tuple[_PackedPoints, ...], key)
        self._packed |= {entry.info.id: entry.point for entry in packed}
        return [entry.info for entry in packed]

    def next_id(self, now: datetime) -> str:
        """Return an id for the next restore point, greater than all others."""
        newest = self.newest()
        return next_id(now, None if newest is None else newest.id)

    def read(self, info: PointInfo) -> RestorePoint:
        if info.id not in self._packed:
            found, _ = self._read()
            for page in found.pages:
                if page.packed and page.first <= info.id <= page.last:
                    self._page(page)
        if info.id in self._packed:
            return self._packed[info.id]
        key = _point_key(info.id)
        data = get_checked(self._objects, key, info.sha256, self._retries)
        return _decoded(data, RestorePoint, key)

    def add(self, point: RestorePoint) -> PointInfo:
        """Add a restore point after all others."""
        data = msgspec.json.encode(point)
        self._put(_point_key(point.id), data)
        info = _list_entry(point, data)
        for _ in range(limits.ARCHIVE_RETRIES_MAX + 1):
            found, version = self._read()
            if any(entry.id == info.id for entry in found.points):
                # The response to an earlier try was lost.
                return info
            try:
                self._replace(self._with(found, info), version)
            except (AlreadyExists, PreconditionFailed):
                continue
            return info
        raise PublisherFenced(
            "another node adds restore points to this object store at the same time"
        )

    def _with(self, found: _List, info: PointInfo) -> _List:
        held, pages = found.points, found.pages
        if len(held) >= limits.PUBLISH_ENTRIES:
            data = msgspec.json.encode(held)
            page = _Page(held[0].id, held[-1].id, hashlib.sha256(data).hexdigest())
            self._put(_page_key(page), data)
            held, pages = (), (*pages, page)
        return msgspec.structs.replace(found, pages=pages, points=(*held, info))

    def _replace(self, listing: _List, version: str | None) -> None:
        data = msgspec.json.encode(listing)
        if version is None:
            self._retries.run(lambda: self._objects.put(LIST, data, if_absent=True))
        else:
            self._retries.run(lambda: self._objects.put(LIST, data, if_version=version))

    def _read(self) -> tuple[_List, str | None]:
        try:
            read = self._retries.run(lambda: self._objects.get(LIST))
        except NotFound:
            return _List(), None
        try:
            return _decoded(read.data, _List, LIST), read.info.version
        except CorruptData:
            # It is truncated. The restore points themselves are all there.
            return _List(points=tuple(self._listed())), read.info.version

    def _listed(self) -> Iterator[PointInfo]:
        """Return every restore point that has an object or is in a pack.

        Some may have been removed: restoring them is refused.
        """
        found: dict[str, PointInfo] = {}
        for info in self._retries.run(lambda: list(self._objects.list("points/"))):
            if not (_POINT.fullmatch(info.key) or info.key.startswith(_PACKS)):
                continue
            data = self._retries.run(lambda key=info.key: self._objects.get(key).data)  # type: ignore[misc]
            # A truncated object was never listed: a point is listed once it is complete, and the
            # points of a pack also exist separately until then.
            with contextlib.suppress(CorruptData):
                self._found_in(info.key, data, found)
        yield from (found[name] for name in sorted(found))

    def _found_in(self, key: str, data: bytes, found: dict[str, PointInfo]) -> None:
        if key.startswith(_PACKS):
            for entry in _decoded(data, tuple[_PackedPoints, ...], key):
                found[entry.info.id] = entry.info
                self._packed[entry.info.id] = entry.point
        else:
            point = _decoded(data, RestorePoint, key)
            found.setdefault(point.id, _list_entry(point, data))

    # Upkeep

    def tidy(self, now_ms: int, keep: str | None = None, *, least: int = 1) -> int:
        """Pack restore points once a page is full, and remove those before `keep`, if at least
        `least`.

        Returns the number of removed points.
        """
        found, version = self._read()
        known = self.all()
        gone = 0 if keep is None else next(at for at, i in enumerate(known) if i.id == keep)
        gone = gone if gone >= max(1, least) else 0
        if not gone and all(page.packed for page in found.pages):
            return 0
        packed = list(self._folded(known, gone))
        pages = tuple(self._packs(packed))
        leaving = {
            UnusedObject(_page_key(page), page.size_bytes)
            for page in found.pages
            if page not in pages
        }
        loose = [info for p in found.pages if not p.packed for info in self._page(p)]
        leaving |= {UnusedObject(_point_key(info.id), 0) for info in (*loose, *found.points)}
        retired = retire(self._objects, "points/", leaving, now_ms, self._retries)
        if failpoints.armed:
            failpoints.hit("archive.retired.listed")
        listing = _List(FORMAT, pages, (), (*found.retired, *retired))
        if not self._swapped(listing, version):
            raise PublisherFenced(
                "another node adds restore points to this object store at the same time"
            )
        return gone

    def sweep(self, now_ms: int, grace_s: float, *, dry_run: bool = False) -> list[RetiredObject]:
        """Delete objects that the list does not refer to, after their grace period."""
        found, version = self._read()
        due = over(found.retired, now_ms, grace_s)
        live = {_page_key(page) for page in found.pages}
        live |= {_point_key(info.id) for info in found.points}
        gone = [
            RetiredObject(entry.key, "points", entry.size_bytes, retired.at_ms)
            for retired in due
            for entry in listed(self._objects, retired, self._retries)
            if entry.key not in live
        ]
        if dry_run or not due:
            return gone
        delete(self._objects, gone)
        kept = tuple(entry for entry in found.retired if entry not in due)
        # If another node has added a point meanwhile, the next call does the rest.
        if self._swapped(msgspec.structs.replace(found, retired=kept), version):
            self._objects.delete_many([entry.key for entry in due])
        return gone

    def _swapped(self, listing: _List, version: str | None) -> bool:
        """Replace the list; return True if it is now as requested."""
        try:
            self._replace(listing, version)
        except (AlreadyExists, PreconditionFailed):
            # It may have been replaced although the response was lost.
            return self._read()[0] == listing
        return True

    def _folded(self, known: list[PointInfo], gone: int) -> Iterator[_PackedPoints]:
        """Return the kept restore points with their contents.

        A point that follows a removed one gets the positions of every stream.
        """
        left = {info.id for info in known[:gone]}
        for at, info in enumerate(known[gone:], gone):
            point = self.read(info)
            before = (
                info.restored if info.restored is not None else (known[at - 1].id if at else "")
            )
            if before in left and not info.whole:
                streams = self.places(known, info)
                updated = msgspec.structs.replace(info, whole=True)
                yield _PackedPoints(
                    updated, msgspec.structs.replace(point, streams=streams, whole=True)
                )
            else:
                yield _PackedPoints(info, point)

    def places(self, known: list[PointInfo], point: PointInfo) -> dict[str, Place]:
        """Return the position of each stream at a restore point."""
        found: dict[str, Place] = {}
        for info in lineage(known, point):
            found |= self.read(info).streams
        return found

    def _packs(self, packed: list[_PackedPoints]) -> Iterator[_Page]:
        """Return pages from the oldest point on; existing ones are not written again."""
        for at in range(0, len(packed), PUBLISH_POINTS_PAGE):
            some = packed[at : at + PUBLISH_POINTS_PAGE]
            data = msgspec.json.encode(some)
            digest = hashlib.sha256(data).hexdigest()
            page = _Page(some[0].info.id, some[-1].info.id, digest, True, len(data))
            self._put(_page_key(page), data)
            yield page

    def _put(self, key: str, data: bytes) -> None:
        put_once(self._objects, upload_of(key, data), self._retries)


def next_id(now: datetime, newest: str | None) -> str:
    """Return an id for a point at a time, greater than the id of the newest one."""
    if newest is not None:
        last = datetime.strptime(newest.split("Z-")[0], _TIME).replace(tzinfo=UTC)
        # A clock that was set back must not order a point before existing ones.
        now = max(now, last + timedelta(milliseconds=1))
    return f"{now.strftime(_TIME)[:-3]}Z-{secrets.token_hex(2)}"


def lineage(points: list[PointInfo], point: PointInfo) -> Iterator[PointInfo]:
    """Return the restore points that lead to one, oldest first, without those left aside by a
    take-over.
    """
    by_id = {each.id: at for at, each in enumerate(points)}
    steps = []
    at = by_id[point.id]
    while at >= 0:
        info = points[at]
        steps.append(info)
        if info.whole:
            break
        at = at - 1 if info.restored is None else by_id[info.restored]
    return reversed(steps)


def _list_entry(point: RestorePoint, data: bytes) -> PointInfo:
    return PointInfo(
        point.id,
        point.at,
        point.started_ms,
        hashlib.sha256(data).hexdigest(),
        len(point.databases),
        len(point.streams),
        point.restored,
        point.whole,
    )


def find(points: list[PointInfo], text: str) -> PointInfo:
    """Return the restore point with an id, or the newest one at or before a time."""
    for point in points:
        if point.id == text:
            return point
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        oldest = f": the oldest is {points[0].id!r}" if points and text < points[0].id else ""
        raise NotFound(
            f"unknown restore point {text!r}{oldest}",
            hint="List the restore points: `fourfold publish ROOT --points`.",
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    before = [point for point in points if datetime.fromisoformat(point.at) <= time]
    if not before:
        raise NotFound(
            f"no restore point at or before {text}",
            hint="List the restore points: `fourfold publish ROOT --points`.",
        )
    return before[-1]


def _point_key(name: str) -> str:
    return f"points/{name}.json"


def _page_key(page: _Page) -> str:
    folder = _PACKS if page.packed else "points/pages/"
    return f"{folder}{page.first}-{page.sha256[:16]}.json"


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what} is not a list of restore points: {error}") from error


class RollbackResult(NamedTuple):
    """The manifest after a take-over at an older publication."""

    publication: Publication
    version: str
    manifest: bytes


def branch_off(
    history: PublishedHistory,
    publication: Publication | None,
    time: PublishTime,
    objects: ObjectStore,
    retries: Retries,
) -> RollbackResult:
    """Let a database continue from a publication, or from nothing."""
    name = history.manifest.name
    step = Publication(
        history.newest + 1,
        0 if publication is None else publication.generation,
        time.point,
        time.at,
        0 if publication is None else publication.position,
        absent=publication is None,
    )
    manifest = msgspec.structs.replace(history.manifest, token=uuid.uuid4().hex)
    manifest, pages = database_manifest.add(manifest, step)
    for key, page in pages.items():
        put_once(objects, upload_of(key, page), retries)
    data = database_manifest.encode(manifest)
    key = database_manifest.manifest_key(name)

    def put() -> str:
        try:
            return objects.put(key, data, if_version=history.version).version
        except PreconditionFailed as error:
            found = objects.get(key)
            if found.data == data:
                return found.info.version
            raise PublisherFenced(
                f"another node published {name!r} meanwhile", hint="Run the command again."
            ) from error

    return RollbackResult(step, retries.run(put), data)


def held_back(history: PublishedHistory, publication: Publication) -> bytes:
    """Return a manifest that ends with a publication; its node is refused when it publishes."""
    kept = tuple(
        entry
        for entry in history.manifest.publications
        if entry.generation < publication.generation
    )
    manifest = msgspec.structs.replace(
        history.manifest, publications=(*kept, publication), newest=publication.generation
    )
    return database_manifest.encode(manifest)
