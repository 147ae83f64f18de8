"""The blobs of a space: bytes by their content, in the space's own database.

A blob has no branch and no history: it is its bytes. What is known about it is an ordinary entity,
`urn:blob-meta:<hash>`, with branches and history like any other; with metadata, the two are written
in one transaction. Deleting one leaves the other alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fourfold import blobs, limits
from fourfold.blobs import Data, TableBlobs
from fourfold.blobs.protocol import check_data
from fourfold.content import content_id, parse_content_id
from fourfold.errors import InvalidInput
from fourfold.kernel import Transaction
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Commit, State
from fourfold.models.documents.request import Request, make_request

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

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
        """The same blobs under the protocol that every blob store has: streams, ranges, usage."""

    def put(
        self,
        data: Data,
        content_type: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        branch: str = "",
    ) -> str:
        """Store bytes; their hash. Those that are there already stay as they are, with the content
        type they first came with.

        `metadata` replaces what the metadata entity says on `branch`, together with the bytes.
        """
        if content_type is not None and not isinstance(content_type, str):
            raise InvalidInput(f"a content type is text, not {content_type!r:.100}")
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
        """Replace what the metadata entity says on `branch` about a blob that is there."""
        stat = self.stat(blob)
        return self._space.submit(
            self._meta_request(blob, stat.size, stat.content_type, metadata, branch)
        )

    def get(self, blob: str) -> bytes:
        """The bytes, verified by their hash."""
        return self.table.get(blob)

    def has(self, blob: str) -> bool:
        return self.table.has(blob)

    def stat(self, blob: str) -> BlobStat:
        """Size and content type."""
        return BlobStat(blob, self.table.size(blob), self.table.content_type(blob))

    def meta(self, blob: str, branch: str = "", at: At = None) -> State | None:
        """The metadata entity as a branch shows it; None when nothing was ever said about it."""
        return self._space.read(meta_id(blob), branch, at)

    def ids(self) -> Iterator[str]:
        """The hash of every blob, sorted."""
        return self.table.ids()

    def _count_as_new(self, blob: str) -> None:
        """One that was there already may be old enough for a collection to take it before whoever
        put it now has said what for.
        """
        sql, ago = self._space.history_kind.sql, f"-{limits.GC_BLOB_TOUCH_S} seconds"
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
    ) -> Request:
        known = {"blob": blob, "size": size, "content_type": content_type}
        if not isinstance(metadata, Mapping) or known.keys() & metadata.keys():
            raise InvalidInput(
                f"the metadata of a blob is an object without the keys {', '.join(known)}"
            )
        session, local_seq = self._space.next_local()
        operation = {"op": "set", "id": meta_id(blob), "value": {"value": {**known, **metadata}}}
        return make_request(
            [operation], branch=branch, session=session, local_seq=local_seq, replayable=False
        )


def meta_id(blob: str) -> str:
    """The entity that says what is known about a blob: the hash as the table has it."""
    return f"{META_PREFIX}{parse_content_id(blob)}"
