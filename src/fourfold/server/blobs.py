"""Blobs of spaces over HTTP: bytes by their hash, whole or in parts.

A blob never changes, so caches may keep it. Content that a browser might run is sent in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from fourfold.errors import NotFound
from fourfold.models.documents import Space
from fourfold.models.documents.blobs import BlobStat
from fourfold.server import cursors
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.ranges import ByteRange, ImmutableContent, content_response, iter_pieces
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import SPACE, SPACES, space_route
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    BlobContentHeaders,
    BlobHeaders,
    BlobInfo,
    BlobPage,
)
from fourfold.wire.pages import PageQuery

BLOBS: Final = f"{SPACE}/blobs"
_OCTETS: Final = "application/octet-stream"
_TYPE: Final = re.compile(r"[\x20-\x7e]{1,255}")


class BlobRoutes:
    """Handlers of the blobs of spaces."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def list_blobs(self, _request: Request, did: str, query: PageQuery) -> Reply:
        """Return a page of blobs."""
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(_list, space, query), is_large=True)

    async def put_blob(self, request: Request, did: str) -> Reply:
        """Store the body as a blob; idempotent."""
        content_type = request.header("content-type")
        async with self._spaces.use(did) as space:
            digest = await self._workers.write(space.blobs.put, request.body, content_type)
            info = _info(await self._workers.run(space.blobs.stat, digest))
        return Reply(info, 201, location=f"{SPACES}/{did}/blobs/{digest}")

    async def get_blob(self, request: Request, did: str, hash: str) -> Response:  # noqa: A002
        """Return the bytes of a blob, or a range of them."""
        async with self._spaces.use(did) as space:
            stat = await self._workers.run(space.blobs.stat, hash)
        content_type = stat.content_type or _OCTETS
        if not _TYPE.fullmatch(content_type):
            content_type = _OCTETS
        content = ImmutableContent(stat.hash, stat.size, content_type)
        return content_response(request, content, partial(self._pieces, did, hash))

    async def _pieces(self, did: str, digest: str, part: ByteRange) -> AsyncIterator[bytes]:
        async with self._spaces.use(did) as space:
            read = partial(space.blobs.table.get_range, digest)
            async for piece in iter_pieces(part, read, self._workers):
                yield piece


def _list(space: Space, query: PageQuery) -> BlobPage:
    listed = cursors.digest_of("blobs", space.did)
    cursor = cursors.parse(query.cursor, listed, str)
    blobs = space.blobs.list(after="" if cursor is None else cursor.after, limit=query.limit + 1)
    page = blobs[: query.limit]
    more = len(blobs) > len(page)
    return BlobPage(
        items=[_info(stat) for stat in page],
        next_cursor=cursors.format_cursor(listed, 0, page[-1].hash) if more else None,
    )


def _info(stat: BlobStat) -> BlobInfo:
    return BlobInfo(hash=stat.hash, size_bytes=stat.size, content_type=stat.content_type)


_ROUTES: Final = (
    space_route(
        *("GET", BLOBS, BlobRoutes.list_blobs),
        operation="list_blobs",
        no_past="a blob has no log entry; its metadata is an entity with a history",
        summary="List the blobs of a space in the order of their hashes.",
        scope="read",
        query=PageQuery,
        ok={200: Ok("A page of blobs.", BlobPage)},
        errors=(NotFound,),
    ),
    space_route(
        *("POST", BLOBS, BlobRoutes.put_blob),
        operation="put_blob",
        summary="Store the body as a blob; idempotent.",
        scope="write",
        body=bytes,
        ok={201: Ok("It is stored.", BlobInfo)},
        errors=(NotFound,),
    ),
    space_route(
        *("GET", f"{BLOBS}/{{hash}}", BlobRoutes.get_blob),
        operation="get_blob",
        no_past="the bytes of a hash never change",
        summary="Get a blob, or a range of its bytes.",
        scope="read",
        headers=BlobHeaders,
        ok={
            200: Ok("The blob.", "any", BlobContentHeaders),
            206: Ok("A part of the blob.", "any", BlobContentHeaders),
            304: Ok("The client has it already.", headers=BlobContentHeaders),
            416: Ok("The blob has no such bytes.", headers=BlobContentHeaders),
        },
        errors=(NotFound,),
    ),
)
