"""The points of a store: moments at which all of it was published, each of which it can be restored
to.

    points/list.json              the newest points, and the pages with the others; replaced whole
    points/<id>.json              what a point is made of; never changed
    points/pages/...json          older parts of the list; never changed
    points/packs/...json          the same, with what the points are made of in them
    points/retired/...json        objects that the list does not name any more

The id of a point begins with its time, and is greater than that of every point before it. Points
are given up from the oldest on; the first that is kept tells of everything, then, and not only of
what changed.

Going on from an earlier publication than the newest.

Those between are left behind: they stay in the manifest, and every point that they belong to can
still be restored to. One publication without rows says from where the history goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.archive.database_manifest import Publication
from fourfold.archive.publisher import PublishTime
from fourfold.archive.restore import History
from fourfold.archive.retired_objects import (
    Leaving,
    RetiredObject,
    Retirement,
    delete,
    listed,
    over,
    retire,
)
from fourfold.archive.retry import Retries
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

LIST = "points/list.json"
_PACKS = "points/packs/"
FORMAT = 1
T = TypeVar("T")
_POINT = re.compile(r"points/[0-9T.]+Z-[0-9a-f]+\.json")
_TIME = "%Y%m%dT%H%M%S.%f"


class Place(msgspec.Struct, frozen=True):
    """Where a database, or a stream, was at a point."""

    generation: int
    position: int
    incarnation: str = ""
    """Which stream of that name; nothing for databases."""


class PointInfo(msgspec.Struct, frozen=True):
    """A point as the list tells of it."""

    id: str
    at: str
    """When it was complete, in UTC."""
    started_ms: int
    sha256: str
    databases: int
    """How many databases, and how many streams, are further than at the point before."""
    streams: int = 0
    restored: str | None = None
    """The point from which the store went on here, having been restored to it."""
    whole: bool = False
    """It tells of every stream: those before it were given up."""


class RestorePoint(msgspec.Struct, frozen=True):
    """What was published at a point: only what changed since the one before."""

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
    """A point in a pack, and how the list tells of it."""

    info: PointInfo
    point: RestorePoint


class _List(msgspec.Struct, frozen=True):
    format: int = FORMAT
    pages: tuple[_Page, ...] = ()
    points: tuple[PointInfo, ...] = ()
    retired: tuple[Retirement, ...] = ()


class Points:
    """The points in an object store."""

    def __init__(self, objects: ObjectStore, retries: Retries | None = None) -> None:
        self._objects = objects
        self._retries = retries or Retries()
        self._packed: dict[str, RestorePoint] = {}

    def all(self) -> list[PointInfo]:
        """Every point, oldest first."""
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
        self._packed |= {each.info.id: each.point for each in packed}
        return [each.info for each in packed]

    def next_id(self, now: datetime) -> str:
        """An id for the next point, greater than all that there are."""
        newest = self.newest()
        if newest is not None:
            last = datetime.strptime(newest.id.split("Z-")[0], _TIME).replace(tzinfo=UTC)
            # A clock that went back must not bring a point before those that there are.
            now = max(now, last + timedelta(milliseconds=1))
        return f"{now.strftime(_TIME)[:-3]}Z-{secrets.token_hex(2)}"

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
        """Put down a point, behind all that there are."""
        data = msgspec.json.encode(point)
        self._put(_point_key(point.id), data)
        info = _told(point, data)
        for _ in range(limits.ARCHIVE_RETRIES_MAX + 1):
            found, version = self._read()
            if any(each.id == info.id for each in found.points):
                # The answer to an earlier try was lost.
                return info
            try:
                self._replace(self._with(found, info), version)
            except (AlreadyExists, PreconditionFailed):
                continue
            return info
        raise PublisherFenced("another node adds points to this object store at the same time")

    def _with(self, found: _List, info: PointInfo) -> _List:
        held, pages = found.points, found.pages
        if len(held) >= limits.PUBLISH_ENTRIES:
            data = msgspec.json.encode(held)
            page = _Page(held[0].id, held[-1].id, hashlib.sha256(data).hexdigest())
            self._put(_page_key(page), data)
            held, pages = (), (*pages, page)
        return msgspec.structs.replace(found, pages=pages, points=(*held, info))

    def _replace(self, wanted: _List, version: str | None) -> None:
        data = msgspec.json.encode(wanted)
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
            # It was cut short. The points themselves are all there.
            return _List(points=tuple(self._listed())), read.info.version

    def _listed(self) -> Iterator[PointInfo]:
        """Every point that there is an object of, or a pack. Some may have been given up: they are
        refused when somebody restores them.
        """
        found: dict[str, PointInfo] = {}
        for info in self._retries.run(lambda: list(self._objects.list("points/"))):
            if not (_POINT.fullmatch(info.key) or info.key.startswith(_PACKS)):
                continue
            data = self._retries.run(lambda key=info.key: self._objects.get(key).data)  # type: ignore[misc]
            # What was cut short was on its way when the list was, and never named by one: a point
            # is listed once it is whole, and the points of a pack lie beside it until then.
            with contextlib.suppress(CorruptData):
                self._found_in(info.key, data, found)
        yield from (found[name] for name in sorted(found))

    def _found_in(self, key: str, data: bytes, found: dict[str, PointInfo]) -> None:
        if key.startswith(_PACKS):
            for each in _decoded(data, tuple[_PackedPoints, ...], key):
                found[each.info.id] = each.info
                self._packed[each.info.id] = each.point
        else:
            point = _decoded(data, RestorePoint, key)
            found.setdefault(point.id, _told(point, data))

    # Upkeep

    def tidy(self, now_ms: int, keep: str | None = None, *, least: int = 1) -> int:
        """Put points together in packs, once a page of them is full; and give up those before the
        point `keep`, if there are at least so many. How many were given up.
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
            Leaving(_page_key(page), page.size_bytes) for page in found.pages if page not in pages
        }
        loose = [info for p in found.pages if not p.packed for info in self._page(p)]
        leaving |= {Leaving(_point_key(info.id), 0) for info in (*loose, *found.points)}
        retired = retire(self._objects, "points/", leaving, now_ms, self._retries)
        if failpoints.armed:
            failpoints.hit("archive.retired.listed")
        wanted = _List(FORMAT, pages, (), (*found.retired, *retired))
        if not self._swapped(wanted, version):
            raise PublisherFenced("another node adds points to this object store at the same time")
        return gone

    def sweep(self, now_ms: int, grace_s: float, *, dry_run: bool = False) -> list[RetiredObject]:
        """Delete objects that the list does not name any more, once their grace is over."""
        found, version = self._read()
        due = over(found.retired, now_ms, grace_s)
        live = {_page_key(page) for page in found.pages}
        live |= {_point_key(info.id) for info in found.points}
        gone = [
            RetiredObject(each.key, "points", each.size_bytes, retired.at_ms)
            for retired in due
            for each in listed(self._objects, retired, self._retries)
            if each.key not in live
        ]
        if dry_run or not due:
            return gone
        delete(self._objects, gone)
        kept = tuple(each for each in found.retired if each not in due)
        # When somebody has added a point meanwhile, the next time does the rest.
        if self._swapped(msgspec.structs.replace(found, retired=kept), version):
            self._objects.delete_many([each.key for each in due])
        return gone

    def _swapped(self, wanted: _List, version: str | None) -> bool:
        """Whether the list is the one that is wanted, now."""
        try:
            self._replace(wanted, version)
        except (AlreadyExists, PreconditionFailed):
            # It may have been replaced all the same, and the answer lost.
            return self._read()[0] == wanted
        return True

    def _folded(self, known: list[PointInfo], gone: int) -> Iterator[_PackedPoints]:
        """The points that are kept, with what they are made of. One that follows on a point that is
        given up tells of every stream.
        """
        left = {info.id for info in known[:gone]}
        for at, info in enumerate(known[gone:], gone):
            point = self.read(info)
            before = (
                info.restored if info.restored is not None else (known[at - 1].id if at else "")
            )
            if before in left and not info.whole:
                streams = self.places(known, info)
                told = msgspec.structs.replace(info, whole=True)
                yield _PackedPoints(
                    told, msgspec.structs.replace(point, streams=streams, whole=True)
                )
            else:
                yield _PackedPoints(info, point)

    def places(self, known: list[PointInfo], point: PointInfo) -> dict[str, Place]:
        """Where each stream was at a point: as the newest point at or before it says that does."""
        found: dict[str, Place] = {}
        for info in lineage(known, point):
            found |= self.read(info).streams
        return found

    def _packs(self, packed: list[_PackedPoints]) -> Iterator[_Page]:
        """Pages from the oldest point on; those that are there already are not written again."""
        for at in range(0, len(packed), limits.PUBLISH_POINTS_PAGE):
            some = packed[at : at + limits.PUBLISH_POINTS_PAGE]
            data = msgspec.json.encode(some)
            digest = hashlib.sha256(data).hexdigest()
            page = _Page(some[0].info.id, some[-1].info.id, digest, True, len(data))
            self._put(_page_key(page), data)
            yield page

    def _put(self, key: str, data: bytes) -> None:
        put_once(self._objects, upload_of(key, data), self._retries)


def lineage(points: list[PointInfo], point: PointInfo) -> Iterator[PointInfo]:
    """The points that lead to one, oldest first, without those that were left behind."""
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


def _told(point: RestorePoint, data: bytes) -> PointInfo:
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


def find(points: list[PointInfo], wanted: str) -> PointInfo:
    """The point of an id; or the newest one at or before a time."""
    for each in points:
        if each.id == wanted:
            return each
    try:
        moment = datetime.fromisoformat(wanted)
    except ValueError:
        raise NotFound(
            f"there is no point {wanted!r}", hint="`fourfold publish ROOT --points` lists them."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    before = [each for each in points if datetime.fromisoformat(each.at) <= moment]
    if not before:
        raise NotFound(
            f"nothing was published at or before {wanted}",
            hint="`fourfold publish ROOT --points` lists what there is.",
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
        raise CorruptData(f"{what}: does not tell of points: {error}") from error


class RollbackResult(NamedTuple):
    """The manifest that goes on from an earlier publication."""

    publication: Publication
    version: str
    manifest: bytes


def branch_off(
    history: History,
    publication: Publication | None,
    moment: PublishTime,
    objects: ObjectStore,
    retries: Retries,
) -> RollbackResult:
    """Let a database go on from a publication, or from nothing."""
    name = history.manifest.name
    step = Publication(
        history.newest + 1,
        0 if publication is None else publication.generation,
        moment.point,
        moment.at,
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
                f"another node published {name!r} meanwhile", hint="Run it again."
            ) from error

    return RollbackResult(step, retries.run(put), data)


def held_back(history: History, publication: Publication) -> bytes:
    """A manifest that ends with a publication: a node that has it is refused when it publishes."""
    kept = tuple(
        each for each in history.manifest.publications if each.generation < publication.generation
    )
    manifest = msgspec.structs.replace(
        history.manifest, publications=(*kept, publication), newest=publication.generation
    )
    return database_manifest.encode(manifest)
