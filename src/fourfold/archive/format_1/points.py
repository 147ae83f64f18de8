"""Restore points of an archive of format 1.

The oldest points were removed first; the first kept point then contains all positions of streams,
not only changed ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from fourfold.archive.restore_points import Place, PointInfo
from fourfold.archive.uploads import get_checked
from fourfold.errors import CorruptData, NotFound
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

LIST = "points/list.json"
_PACKS = "points/packs/"
T = TypeVar("T")
_POINT = re.compile(r"points/[0-9T.]+Z-[0-9a-f]+\.json")


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
    pages: tuple[_Page, ...] = ()
    points: tuple[PointInfo, ...] = ()


class Points:
    """The restore points in an object store."""

    def __init__(self, objects: ObjectStore, retries: Retries | None = None) -> None:
        self._objects = objects
        self._retries = retries or Retries()
        self._packed: dict[str, RestorePoint] = {}

    def all(self) -> list[PointInfo]:
        """Return every restore point, oldest first."""
        found = self._read()
        return [*(info for page in found.pages for info in self._page(page)), *found.points]

    def newest(self) -> PointInfo | None:
        """Return the newest restore point; None if there is none."""
        found = self._read()
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

    def read(self, info: PointInfo) -> RestorePoint:
        """Return the contents of a restore point."""
        if info.id not in self._packed:
            found = self._read()
            for page in found.pages:
                if page.packed and page.first <= info.id <= page.last:
                    self._page(page)
        if info.id in self._packed:
            return self._packed[info.id]
        key = _point_key(info.id)
        data = get_checked(self._objects, key, info.sha256, self._retries)
        return _decoded(data, RestorePoint, key)

    def _read(self) -> _List:
        try:
            read = self._retries.run(lambda: self._objects.get(LIST))
        except NotFound:
            return _List()
        try:
            return _decoded(read.data, _List, LIST)
        except CorruptData:
            # It is truncated. The restore points themselves are all there.
            return _List(points=tuple(self._listed()))

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

    def places(self, known: list[PointInfo], point: PointInfo) -> dict[str, Place]:
        """Return the position of each stream at a restore point."""
        found: dict[str, Place] = {}
        for info in lineage(known, point):
            found |= self.read(info).streams
        return found


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
