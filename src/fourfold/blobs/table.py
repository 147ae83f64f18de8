"""Blobs as rows of the table `blob_store` in a SQLite database.

A small blob needs no file and is committed together with the rows that refer to it: `insert` runs
in a transaction of the caller. The column `hash` contains the 64 digits of the id, without
`sha256:`. `put` returns when the row is committed, with the durability of the profile of the
database.

SQLite stores a value as a whole, so a stream is first collected in memory, up to `max_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fourfold import limits
from fourfold.blobs.protocol import (
    BlobUsage,
    Data,
    Source,
    check_age,
    check_data,
    not_found,
    pieces_of,
    verified,
)
from fourfold.content import Hasher, content_id, parse_content_id
from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel import Database, Migration, ReadTransaction, Transaction, load_queries
from fourfold.kernel.named_queries import read_sql
from fourfold.objects.validation import check_chunk_bytes, check_range

BLOB_LIST_PAGE: Final = 1_000
"""Ids read from a table at once, so that a long listing keeps no read transaction open."""

CONTENT_TYPE_MAX: Final = 1_000
"""Characters of a content type."""

_SQL = load_queries("fourfold.blobs")

MIGRATION: Final = Migration(1, "blob_store", read_sql("fourfold.blobs", "schema.sql"))
"""Creates the table in a database for blobs only; models have it in their own schema."""


def insert(
    txn: Transaction,
    data: Data,
    *,
    content_type: str | None = None,
    max_bytes: int = limits.BLOB_BYTES_MAX,
) -> str:
    """Store a blob in the caller's transaction; return its id."""
    flat = check_data(data, max_bytes)
    _check_content_type(content_type)
    blob_id = content_id(flat)
    txn.execute(_SQL.put, (parse_content_id(blob_id), flat, content_type))
    return blob_id


def _check_content_type(content_type: str | None) -> None:
    """Raise InvalidInput unless the content type is text that a header can hold."""
    if content_type is None:
        return
    if not content_type.isprintable() or len(content_type) > CONTENT_TYPE_MAX:
        raise InvalidInput(
            f"content_type must be at most {CONTENT_TYPE_MAX} printable characters, "
            f"got {content_type!r:.100}"
        )
    try:
        content_type.encode()
    except UnicodeEncodeError:
        raise InvalidInput("content_type must not contain lone surrogates") from None


class TableBlobs:
    """A BlobStore in the table `blob_store`, which must exist."""

    def __init__(self, database: Database, *, max_bytes: int = limits.BLOB_BYTES_MAX) -> None:
        self.database = database
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<TableBlobs {self.database.path}>"

    @property
    def _location(self) -> str:
        return f"table blob_store of {self.database.path}"

    def put(self, data: Data, *, content_type: str | None = None) -> str:
        """Store the bytes unless they exist; return their id. A stored content type is kept."""
        flat = check_data(data, self.max_bytes)
        _check_content_type(content_type)
        blob_id = content_id(flat)
        digits = parse_content_id(blob_id)
        with self.database.read() as snapshot:
            if snapshot.value(_SQL.get_size, (digits,)) == len(flat):
                return blob_id
        parameters = (digits, flat, content_type)
        if len(flat) < limits.GROUP_BYTES_MAX:
            self.database.transact(lambda txn: txn.execute(_SQL.put, parameters), size=len(flat))
        else:
            # Too large for a shared commit.
            with self.database.write() as txn:
                txn.execute(_SQL.put, parameters)
        return blob_id

    def put_stream(self, source: Source, *, content_type: str | None = None) -> str:
        """Store the bytes of a stream; return their id."""
        collected = bytearray()
        for piece in pieces_of(source, Hasher(), self.max_bytes):
            collected += piece
        return self.put(collected, content_type=content_type)

    def get(self, blob_id: str) -> bytes:
        """Return the bytes after verifying their hash."""
        digits = parse_content_id(blob_id)
        with self.database.read() as snapshot:
            data = self._bytes(snapshot, _SQL.get, blob_id, (digits,))
        return verified(blob_id, data, self._row(digits))

    def chunks(self, blob_id: str, chunk_bytes: int = limits.BLOB_CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in pieces, verified as a whole."""
        parse_content_id(blob_id)
        return self._chunks(blob_id, check_chunk_bytes(chunk_bytes))

    def _chunks(self, blob_id: str, chunk_bytes: int) -> Iterator[bytes]:
        data = self.get(blob_id)
        for at in range(0, len(data), chunk_bytes):
            yield data[at : at + chunk_bytes]

    def get_range(self, blob_id: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`, without verification."""
        start, length = check_range(start, length)
        digits = parse_content_id(blob_id)
        largest = limits.BLOB_BYTES_MAX * 2
        with self.database.read() as snapshot:
            parameters = (digits, min(start, largest), min(length, largest))
            return self._bytes(snapshot, _SQL.get_range, blob_id, parameters)

    def _bytes(
        self, snapshot: ReadTransaction, sql: str, blob_id: str, parameters: tuple[str | int, ...]
    ) -> bytes:
        row = snapshot.one(sql, parameters)
        if row is None:
            raise not_found(blob_id, self._location)
        data = row[0]
        if not isinstance(data, bytes):
            raise CorruptData(f"{self._row(parse_content_id(blob_id))}: expected bytes")
        return data

    def has(self, blob_id: str) -> bool:
        """Return True if the blob exists, without reading its bytes."""
        return self._size(blob_id) is not None

    def size(self, blob_id: str) -> int:
        """Return the stored size of the blob."""
        size = self._size(blob_id)
        if size is None:
            raise not_found(blob_id, self._location)
        return size

    def _size(self, blob_id: str) -> int | None:
        with self.database.read() as snapshot:
            size: int | None = snapshot.value(_SQL.get_size, (parse_content_id(blob_id),))
            return size

    def content_type(self, blob_id: str) -> str | None:
        """Return the content type of the first `put`, if any."""
        with self.database.read() as snapshot:
            row = snapshot.one(_SQL.get_content_type, (parse_content_id(blob_id),))
        if row is None:
            raise not_found(blob_id, self._location)
        content_type: str | None = row[0]
        return content_type

    def ids(self) -> Iterator[str]:
        """Yield every id, sorted."""
        last = ""
        while page := self.page(last):
            yield from page
            last = page[-1]

    def page(self, after: str = "", limit: int = BLOB_LIST_PAGE) -> list[str]:
        """Return up to `limit` ids after the id `after`, sorted."""
        digits = parse_content_id(after) if after else ""
        with self.database.read() as snapshot:
            return [f"sha256:{row[0]}" for row in snapshot.all(_SQL.page, (digits, limit))]

    def delete(self, blob_id: str) -> bool:
        """Delete the blob, even if it is referenced; return False if it did not exist."""
        digits = parse_content_id(blob_id)
        return self.database.transact(lambda txn: _delete(txn, digits))

    def usage(self) -> BlobUsage:
        """Count all blobs. Slow: it visits every one of them."""
        with self.database.read() as snapshot:
            count, total = snapshot.all(_SQL.usage)[0]
        return BlobUsage(count, total)

    def sweep(self, older_than_s: float = limits.BLOB_SWEEP_AGE_S) -> int:
        """Do nothing: a transaction that did not commit leaves no data."""
        check_age(older_than_s)
        return 0

    def _row(self, digits: str) -> str:
        return f"row {digits} of {self._location}"


def _delete(txn: Transaction, digits: str) -> bool:
    txn.execute(_SQL.delete, (digits,))
    return txn.changes > 0
