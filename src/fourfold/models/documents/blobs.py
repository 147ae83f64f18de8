"""The blobs of a space: bytes by their content, in the space's own database.

A blob has no branch and no history. Its metadata is an ordinary entity, `urn:blob-meta:<hash>`,
with branches and history; `put` with metadata writes both in one transaction. Deleting one does not
delete the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import blobs
from fourfold.blobs import Data, TableBlobs
from fourfold.blobs.protocol import check_data
from fourfold.blobs.table import BLOB_LIST_PAGE
from fourfold.content import content_id, parse_content_id
from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import Transaction
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Commit, Document, State
from fourfold.models.documents.request import DocumentRequest, make_request

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

GC_BLOB_TOUCH_S: Final = 600
"""A blob put again within this time keeps its recorded age."""

META_PREFIX = "urn:blob-meta:"


class BlobStat(msgspec.Struct, frozen=True):
    """A blob without its bytes."""

    hash: str
    size: int
    content_type: str | None


class SpaceBlobs:
    """Blobs of one space. A hash is written `sha256:<64 digits>`."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.table = TableBlobs(space.database)
        """The blobs through the `BlobStore` protocol: streaming, ranges and usage."""

    def put(
        self,
        data: Data,
        content_type: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        branch: str = "",
    ) -> str:
        """Store bytes and return their hash; an existing blob keeps its first content type.

        `metadata` replaces the metadata entity on `branch`, in the same transaction.
        """
        if content_type is not None and not isinstance(content_type, str):
            raise InvalidInput(f"content_type must be text, got {content_type!r:.100}")
        if metadata is None:
            blob = self.table.put(data, content_type=content_type)
            self._count_as_new(blob)
            return blob
        flat = check_data(data, self.table.max_bytes)
        blob = content_id(flat)
        request = self._meta_request(blob, len(flat), content_type, metadata, branch)

        def store(view: HistoryReader) -> None:
            txn = view.snapshot
            assert isinstance(txn, Transaction)
            blobs.insert(txn, flat, content_type=content_type, max_bytes=self.table.max_bytes)

        self._space.submit(request, store, size=len(flat))
        return blob

    def describe(self, blob: str, metadata: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the metadata of an existing blob on `branch`."""
        stat = self.stat(blob)
        return self._space.submit(
            self._meta_request(blob, stat.size, stat.content_type, metadata, branch)
        )

    def get(self, blob: str) -> bytes:
        """Return the bytes of a blob, verified by their hash."""
        return self.table.get(blob)

    def has(self, blob: str) -> bool:
        """Return True if the blob exists."""
        return self.table.has(blob)

    def stat(self, blob: str) -> BlobStat:
        """Return the size and content type of a blob."""
        return BlobStat(blob, self.table.size(blob), self.table.content_type(blob))

    def meta(self, blob: str, branch: str = "", at: At = None) -> State | None:
        """Return the metadata entity of a blob on a branch, or None if it has none."""
        return self._space.read(meta_id(blob), branch, at)

    def list(self, *, after: str = "", limit: int = BLOB_LIST_PAGE) -> list[BlobStat]:
        """Return up to `limit` blobs after the hash `after`, sorted by hash."""
        stats = []
        for blob in self.table.page(after, limit):
            # It may have been deleted since.
            with suppress(NotFound):
                stats.append(self.stat(blob))
        return stats

    def ids(self) -> Iterator[str]:
        """Return an iterator over the hashes of all blobs, sorted."""
        return self.table.ids()

    def _count_as_new(self, blob: str) -> None:
        """Renew the age of an existing blob, so that gc keeps it until an entity refers to it."""
        sql, ago = self._space.history_kind.sql, f"-{GC_BLOB_TOUCH_S} seconds"
        with self._space.view() as view:
            old = view.value(sql.put_long_ago, (parse_content_id(blob), ago))
        if old:
            self._space.database.transact(
                lambda txn: txn.execute(sql.touch_blob, (parse_content_id(blob), ago))
            )

    def _meta_request(
        self,
        blob: str,
        size: int,
        content_type: str | None,
        metadata: Mapping[str, Any],
        branch: str,
    ) -> DocumentRequest:
        document = meta_document(blob, size, content_type, metadata)
        session, local_seq = self._space.next_local()
        operation = {"op": "set", "id": meta_id(blob), "value": document}
        return make_request(
            [operation], branch=branch, session=session, local_seq=local_seq, replayable=False
        )


def meta_id(blob: str) -> str:
    """Return the id of the metadata entity of a blob."""
    return f"{META_PREFIX}{parse_content_id(blob)}"


def meta_document(
    blob: str, size: int, content_type: str | None, metadata: Mapping[str, Any]
) -> Document:
    """Return the document of the metadata entity of a blob; raise InvalidInput."""
    known = {"blob": blob, "size": size, "content_type": content_type}
    if not isinstance(metadata, Mapping) or known.keys() & metadata.keys():
        raise InvalidInput(f"metadata must be an object without the keys {', '.join(known)}")
    return {"value": {**known, **metadata}}
