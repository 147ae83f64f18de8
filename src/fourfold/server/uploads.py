"""Uploads: files that a client sends for a job, in pieces of any size up to that of a request.

They are in a folder next to the store, and clients see their names only. Keys for these routes are
for the model `store`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from fourfold import limits
from fourfold.durability import sync_file
from fourfold.errors import InvalidInput, NotFound, Refused
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.store import UploadInfo, UploadList, UploadQuery

UPLOADS: Final = "/v1/uploads"
UPLOAD: Final = f"{UPLOADS}/{{upload}}"
UPLOADS_MAX: Final = 1_000
UPLOADS_BYTES_MAX: Final = 64 * limits.GIB
"""Files, and bytes of all of them."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def uploads_folder(root: Path) -> Path:
    """Return the folder of uploads: next to the store."""
    return root.with_name(f"{root.name}-uploads")


def upload_path(folder: Path, name: str) -> Path:
    """Return the path of an upload that exists.

    Raises:
        NotFound: there is no such upload.
    """
    path = folder / _check_name(name)
    if not path.is_file():
        raise NotFound(
            f"unknown upload {name!r}", hint=f"Send it first: `curl -T FILE URL{UPLOADS}/{name}`."
        )
    return path


class UploadRoutes:
    """Handlers of uploads."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self._folder = folder
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def list_uploads(self, _request: Request) -> Reply:
        """Return the uploads, in the order of their names."""
        return Reply(UploadList(items=await self._workers.run(_list_uploads, self._folder)))

    async def put_upload(self, request: Request, upload: str, query: UploadQuery) -> Reply:
        """Store the body as a piece of an upload."""
        path = self._folder / _check_name(upload)
        info, created = await self._workers.write(_write, path, query.offset, request.body)
        return Reply(info, 201 if created else 200)

    async def delete_upload(self, _request: Request, upload: str) -> Reply:
        """Delete an upload; a job that reads it still does."""
        path = upload_path(self._folder, upload)
        await self._workers.write(path.unlink, missing_ok=True)
        return Reply(status=204)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"upload: must be letters, digits, dots, dashes and underscores, got {name!r:.80}"
        )
    return name


def _list_uploads(folder: Path) -> list[UploadInfo]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_info(path) for path in paths if _NAME.fullmatch(path.name) and path.is_file()]


def _info(path: Path) -> UploadInfo:
    status = path.stat()
    return UploadInfo(
        name=path.name, bytes=status.st_size, changed_at_ms=status.st_mtime_ns // 1_000_000
    )


def _write(path: Path, offset: int, data: bytes) -> tuple[UploadInfo, bool]:
    """Write a piece of an upload; return the upload, and True if it is new.

    Offset 0 starts a new file, so a job that reads the old one is not disturbed. Another offset is
    the end of the file, or a piece that was written before.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    uploads = {info.name: info.bytes for info in _list_uploads(path.parent)}
    size = uploads.get(path.name, 0)
    if offset == 0:
        _check_room(uploads, path.name, len(data) - size)
        path.unlink(missing_ok=True)
        _append(path, data, os.O_EXCL | os.O_CREAT)
        return _info(path), path.name not in uploads
    if path.name not in uploads or offset > size:
        raise Refused(
            f"offset: must be at most {size}, the size of the upload, got {offset}",
            hint="Send the pieces in their order.",
            details={"bytes": size},
        )
    if offset < size:
        with path.open("rb") as file:
            file.seek(offset)
            if file.read(len(data)) != data:
                raise Refused(
                    f"offset: the upload has other bytes at {offset}",
                    hint="Send the whole file again, from offset 0.",
                    details={"bytes": size},
                )
        return _info(path), False
    _check_room(uploads, path.name, len(data))
    _append(path, data, 0)
    return _info(path), False


def _check_room(uploads: dict[str, int], name: str, more: int) -> None:
    if len(uploads.keys() | {name}) > UPLOADS_MAX:
        raise Refused(f"uploads: must be at most {UPLOADS_MAX}", hint="Delete some of them.")
    if sum(uploads.values()) + more > UPLOADS_BYTES_MAX:
        raise Refused(
            f"uploads: must have at most {UPLOADS_BYTES_MAX} bytes", hint="Delete some of them."
        )


def _append(path: Path, data: bytes, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | flags, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(data)
        file.flush()
        sync_file(descriptor)


def _upload_route(method: str, path: str, handler: Any, **options: Any) -> Route:
    return Route(method, path, handler, model="store", scope="admin", **options)


_ROUTES: Final = (
    _upload_route(
        *("GET", UPLOADS, UploadRoutes.list_uploads),
        operation="list_uploads",
        summary="List the uploads in the order of their names.",
        ok={200: Ok("The uploads.", UploadList)},
    ),
    _upload_route(
        *("PUT", UPLOAD, UploadRoutes.put_upload),
        operation="put_upload",
        summary="Upload a file for a job, or a piece of it; sending a piece again changes nothing.",
        query=UploadQuery,
        body=bytes,
        ok={200: Ok("It is stored.", UploadInfo), 201: Ok("A new upload.", UploadInfo)},
        errors=(Refused,),
    ),
    _upload_route(
        *("DELETE", UPLOAD, UploadRoutes.delete_upload),
        operation="delete_upload",
        summary="Delete an upload.",
        ok={204: Ok("It is deleted.")},
        errors=(NotFound,),
    ),
)
