# Generated from ../coroutines/remote_blobs.py by `make generate`: change that file.
"""Blobs of a space of a server, for threads."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.blobs.protocol import Data, check_data
from fourfold.blobs.table import BLOB_LIST_PAGE
from fourfold.client import documents
from fourfold.content import content_id
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.blobs import BlobStat, meta_document, meta_id
from fourfold.models.documents.records import Commit, State
from fourfold.wire import documents as wire

if TYPE_CHECKING:
    from fourfold.client.threads.remote_spaces import RemoteSpace


class RemoteBlobs:
    """Blobs of one space of a server. A hash is written `sha256:<64 digits>`."""

    def __init__(self, space: RemoteSpace) -> None:
        self._space = space

    def put(
        self,
        data: Data,
        content_type: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        branch: str = "",
    ) -> str:
        """Store bytes and return their hash; an existing blob keeps its first content type.

        `metadata` replaces the metadata entity on `branch`, in a separate transaction.
        """
        if content_type is not None and not isinstance(content_type, str):
            raise InvalidInput(f"content_type must be text, got {content_type!r:.100}")
        flat = check_data(data, limits.HTTP_BODY_MAX)
        blob = content_id(flat)
        if metadata is not None:
            meta_document(blob, len(flat), content_type, metadata)
        response = self._space.connection.send(
            self._space.calls.put_blob(bytes(flat), content_type)
        )
        info = documents.parse(response, wire.BlobInfo)
        if metadata is not None:
            document = meta_document(blob, len(flat), content_type, metadata)
            self._space.set(meta_id(blob), document, branch=branch)
        return info.hash

    def describe(self, blob: str, metadata: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the metadata of an existing blob on `branch`."""
        stat = self.stat(blob)
        document = meta_document(blob, stat.size, stat.content_type, metadata)
        return self._space.set(meta_id(blob), document, branch=branch)

    def get(self, blob: str) -> bytes:
        """Return the bytes of a blob, verified by their hash."""
        response = self._space.connection.send(self._space.calls.get_blob(blob))
        return documents.parse_blob(response, blob)

    def has(self, blob: str) -> bool:
        """Return True if the blob exists."""
        try:
            self.stat(blob)
        except NotFound:
            return False
        return True

    def stat(self, blob: str) -> BlobStat:
        """Return the size and content type of a blob."""
        call = self._space.calls.get_blob(blob, "HEAD")
        return documents.parse_stat(self._space.connection.send(call), blob)

    def meta(self, blob: str, branch: str = "", at: At = None) -> State | None:
        """Return the metadata entity of a blob on a branch, or None if it has none."""
        return self._space.read(meta_id(blob), branch, at)

    def list(self, *, after: str = "", limit: int = BLOB_LIST_PAGE) -> builtins.list[BlobStat]:
        """Return up to `limit` blobs after the hash `after`, sorted by hash."""
        stats: builtins.list[BlobStat] = []
        pages = self._space.connection.pages(self._space.calls.blobs(), wire.BlobPage)
        for page in pages:
            stats += [documents.to_stat(info) for info in page.items if info.hash > after]
            if len(stats) >= limit:
                break
        return stats[:limit]

    def ids(self) -> Iterator[str]:
        """Return an iterator over the hashes of all blobs, sorted."""
        pages = self._space.connection.pages(self._space.calls.blobs(), wire.BlobPage)
        for page in pages:
            for info in page.items:
                yield info.hash
