"""Rows of the catalog of an archive, and their encoding as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from fourfold.archive.delta_actions import AddFile
from fourfold.archive.parquet import arrow
from fourfold.archive.table_state import PointInterval
from fourfold.errors import CorruptData

CATALOG: Final = "catalog"
POINT_ROW, TABLES_ROW, DATABASE_ROW = "point", "tables", "database"
POSITIONS: Final = "positions"
"""Model of the row with the positions of streams, which have manifests of their own."""


class DatabaseRow(msgspec.Struct, frozen=True, gc=False):
    """A database as of a commit."""

    version: int
    name: str
    model: str
    file_id: str
    base: int
    """First point whose rows count."""
    point: int
    """Last point whose rows count; less than `version` if a take-over chose an older state."""
    token: str
    position: int = 0
    migrations: int = 0
    absent: bool = False
    rows: int = 0
    bytes: int = 0
    node: str = ""
    epoch: int = 0

    @property
    def interval(self) -> PointInterval:
        """Rows that count."""
        return PointInterval(self.file_id, self.base, self.point)

    @property
    def is_positions(self) -> bool:
        """True if this is not a database, but the positions of streams at the point."""
        return self.model == POSITIONS

    @property
    def is_older(self) -> bool:
        """True if a take-over chose an older state: the next publication has all rows."""
        return self.point < self.version


class CommitRow(msgspec.Struct, frozen=True):
    """A commit of the catalog: a point, or maintenance of the tables."""

    version: int
    kind: str
    token: str
    node: str
    epoch: int
    tables: dict[str, int] = {}
    """Version of every archive table; in memory only of the newest commit."""
    id: str = ""
    at: str = ""
    started_ms: int = 0
    restored: str | None = None
    databases: int = 0
    streams: int = 0


def digest_tag(file: AddFile, key: str) -> str:
    """Return the SHA-256 of a file of the archive."""
    digest = (file.tags or {}).get("sha256")
    if digest is None:
        raise CorruptData(f"object {key!r} has no digest in the log of its table")
    return digest


def catalog_schema() -> Any:
    """Return the Arrow schema of the catalog."""
    pa, _ = arrow()
    text, number = pa.string(), pa.int64()
    return pa.schema(
        [
            ("kind", text),
            ("version", number),
            ("token", text),
            ("node", text),
            ("epoch", number),
            ("id", text),
            ("at", text),
            ("started_ms", number),
            ("restored", text),
            ("databases", number),
            ("streams", number),
            ("tables", text),
            ("name", text),
            ("model", text),
            ("file_id", text),
            ("base", number),
            ("point", number),
            ("position", number),
            ("migrations", number),
            ("absent", pa.bool_()),
            ("rows", number),
            ("bytes", number),
        ]
    )


def encode_rows(rows: Sequence[CommitRow | DatabaseRow]) -> Any:
    """Return rows as a table."""
    pa, _ = arrow()
    return pa.Table.from_pylist([_encode(row) for row in rows], schema=catalog_schema())


def _encode(row: CommitRow | DatabaseRow) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    if isinstance(row, DatabaseRow):
        return {"kind": DATABASE_ROW, **values}
    return {**values, "tables": msgspec.json.encode(row.tables).decode()}


_COMMIT: Final = CommitRow.__struct_fields__
_DATABASE: Final = DatabaseRow.__struct_fields__
_TABLES: Final = msgspec.json.Decoder(dict[str, int])
_SHARED: Final = frozenset({"version", "model", "base", "point", "token", "node", "epoch"})
"""Columns with few values: rows in memory share them."""
_BATCH_ROWS: Final = 65_536


def databases_in(table: Any) -> Any:
    """Return the rows of databases of a table."""
    pa, _ = arrow()
    return table.filter(pa.compute.equal(table.column("kind"), DATABASE_ROW))


def commits_in(table: Any) -> Any:
    """Return the rows of commits of a table."""
    pa, _ = arrow()
    return table.filter(pa.compute.not_equal(table.column("kind"), DATABASE_ROW))


def decode_databases(table: Any, what: str) -> Iterator[DatabaseRow]:
    """Yield the rows of databases of a table; raise CorruptData if a column is missing."""
    try:
        selected = databases_in(table.select(["kind", *_DATABASE]))
        for batch in selected.to_batches(max_chunksize=_BATCH_ROWS):
            yield from map(DatabaseRow, *(_values(batch, name) for name in _DATABASE))
    except (KeyError, TypeError) as error:
        raise CorruptData(f"{what} is not a file of the catalog: {error}") from error


def decode_commits(table: Any, what: str) -> list[CommitRow]:
    """Return the rows of commits of a table, in their order; only the newest has its tables."""
    found: list[CommitRow] = []
    try:
        for values in commits_in(table.select(_COMMIT)).to_pylist():
            if values["kind"] in {POINT_ROW, TABLES_ROW}:
                chosen = {name: values[name] for name in _COMMIT}
                found.append(CommitRow(**chosen))
        found.sort(key=lambda commit: commit.version)
        return [
            msgspec.structs.replace(
                commit, tables=_TABLES.decode(str(commit.tables)) if commit is found[-1] else {}
            )
            for commit in found
        ]
    except (KeyError, msgspec.DecodeError) as error:
        raise CorruptData(f"{what} is not a file of the catalog: {error}") from error


def _values(batch: Any, name: str) -> list[Any]:
    column = batch.column(name)
    if name not in _SHARED:
        return column.to_pylist()  # type: ignore[no-any-return]
    encoded = column.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    return [known[at] for at in encoded.indices.to_pylist()]
