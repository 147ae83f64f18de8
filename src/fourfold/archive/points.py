"""The points of a store: moments at which all of it was published, each of which it can be restored
to.

    points/list.json              the newest points, and the pages with the others; replaced whole
    points/<id>.json              what a point is made of; never changed
    points/pages/...json          older parts of the list; never changed

The id of a point begins with its time, and is greater than that of every point before it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from fourfold import limits
from fourfold.archive.retrying import Retries
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    NotFound,
    PreconditionFailed,
    PublisherFenced,
)
from fourfold.objects import ObjectStore

LIST = "points/list.json"
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


class Point(msgspec.Struct, frozen=True):
    """What was published at a point: only what changed since the one before."""

    id: str
    at: str
    started_ms: int
    databases: dict[str, Place] = {}
    streams: dict[str, Place] = {}
    restored: str | None = None


class _Page(msgspec.Struct, frozen=True):
    first: str
    last: str
    sha256: str


class _List(msgspec.Struct, frozen=True):
    format: int = FORMAT
    pages: tuple[_Page, ...] = ()
    points: tuple[PointInfo, ...] = ()


class Points:
    """The points in an object store."""

    def __init__(self, objects: ObjectStore, retries: Retries | None = None) -> None:
        self._objects = objects
        self._retries = retries or Retries()

    def all(self) -> list[PointInfo]:
        """Every point, oldest first."""
        found, _ = self._read()
        older: list[PointInfo] = []
        for page in found.pages:
            data = get_checked(self._objects, _page_key(page), page.sha256, self._retries)
            older += _decoded(data, tuple[PointInfo, ...], _page_key(page))
        return [*older, *found.points]

    def newest(self) -> PointInfo | None:
        found, _ = self._read()
        return found.points[-1] if found.points else None

    def next_id(self, now: datetime) -> str:
        """An id for the next point, greater than all that there are."""
        newest = self.newest()
        if newest is not None:
            last = datetime.strptime(newest.id.split("Z-")[0], _TIME).replace(tzinfo=UTC)
            # A clock that went back must not bring a point before those that there are.
            now = max(now, last + timedelta(milliseconds=1))
        return f"{now.strftime(_TIME)[:-3]}Z-{secrets.token_hex(2)}"

    def read(self, info: PointInfo) -> Point:
        key = f"points/{info.id}.json"
        data = get_checked(self._objects, key, info.sha256, self._retries)
        return _decoded(data, Point, key)

    def add(self, point: Point) -> PointInfo:
        """Put down a point, behind all that there are."""
        data = msgspec.json.encode(point)
        self._put(f"points/{point.id}.json", data)
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
        return _List(FORMAT, pages, (*held, info))

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
        """Every point that there is an object of."""
        for info in self._retries.run(lambda: list(self._objects.list("points/"))):
            if _POINT.fullmatch(info.key):
                data = self._retries.run(lambda key=info.key: self._objects.get(key).data)  # type: ignore[misc]
                yield _told(_decoded(data, Point, info.key), data)

    def _put(self, key: str, data: bytes) -> None:
        put_once(self._objects, upload_of(key, data), self._retries)


def _told(point: Point, data: bytes) -> PointInfo:
    return PointInfo(
        point.id,
        point.at,
        point.started_ms,
        hashlib.sha256(data).hexdigest(),
        len(point.databases),
        len(point.streams),
        point.restored,
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


def _page_key(page: _Page) -> str:
    return f"points/pages/{page.first}-{page.sha256[:16]}.json"


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what}: does not tell of points: {error}") from error
