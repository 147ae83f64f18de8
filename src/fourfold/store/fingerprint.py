"""Digests of the published rows of a database, to compare it with a restored one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from fourfold.archive.capture import CaptureState
from fourfold.archive.publication import GONE, Description, PublicationTable, Row, TableColumn
from fourfold.archive.sealer import ValueTarget, seal_into
from fourfold.kernel import Database


def fingerprint(database: Database, description: Description) -> dict[str, str]:
    """Return a digest of the published rows of each table, whatever their order is."""
    sink = _FingerprintSink()
    values = ValueTarget(lambda _digest, _chunks, _size: None, None)
    seal_into(sink, database, description, CaptureState(), values)
    return {name: f"{count} rows, {total:032x}" for name, (count, total) in sink.tables.items()}


class _FingerprintSink:
    """Adds up digests of rows."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[int, int]] = {}

    def write(
        self,
        table: PublicationTable,
        action: str,
        columns: tuple[TableColumn, ...],
        rows: Iterable[Row],
    ) -> None:
        """Add the rows of a table; see `sealer.RowSink`."""
        if action == GONE:
            return
        head = msgspec.msgpack.encode(columns)
        count, total = self.tables.get(table.name, (0, 0))
        for row in rows:
            digest = hashlib.sha256(head + msgspec.msgpack.encode(row)).digest()
            count, total = count + 1, (total + int.from_bytes(digest[:16])) % (1 << 128)
        self.tables[table.name] = count, total
