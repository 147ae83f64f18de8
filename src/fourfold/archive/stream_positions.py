"""Positions of streams at points: the archive table `streams.positions`.

Segments and manifests of streams are published on their own. A row of this table has the position
of a stream that a point includes, so that streams can be restored at that point with everything
else. It is a changelog like the other tables; in the catalog it is the row `streams`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fourfold.archive.catalog_rows import POSITIONS, DatabaseRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.publication import PUT, PublicationTable, TableColumn
from fourfold.archive.restore_points import Place
from fourfold.archive.table_layout import archive_table
from fourfold.archive.table_publisher import TablePublication
from fourfold.archive.table_reader import TableReader
from fourfold.archive.table_state import PointInterval
from fourfold.archive.table_writer import RowOrigin

NAME: Final = "streams"
"""Name of the row in the catalog."""
_TABLE = PublicationTable("positions", ("stream",))
_COLUMNS = (
    TableColumn("stream", "TEXT"),
    TableColumn("generation", "INTEGER"),
    TableColumn("position", "INTEGER"),
    TableColumn("incarnation", "TEXT"),
)
_ORIGIN = RowOrigin(NAME, "database", NAME, NAME)
_ARCHIVED = archive_table(NAME, "database", _TABLE)


def add_positions(
    publication: TablePublication, places: Mapping[str, Place], before: DatabaseRow | None
) -> DatabaseRow:
    """Add positions of streams to a publication; return the row for its commit."""
    rows = [
        (name, place.generation, place.position, place.incarnation)
        for name, place in sorted(places.items())
    ]
    publication.sink(_ORIGIN).write(_TABLE, PUT, _COLUMNS, rows)
    continues = before is not None and not before.absent and not before.is_older
    base = before.base if before is not None and continues else publication.point
    return publication.row(NAME, POSITIONS, NAME, base)


def positions_at(reader: TableReader, row: DatabaseRow | None) -> dict[str, Place]:
    """Return the position of each stream as of a row of the catalog."""
    return {} if row is None or row.absent else _read(reader, row.interval)


def last_positions(reader: TableReader, state: CatalogState) -> dict[str, Place]:
    """Return the positions that the newest point with streams has added."""
    row = state.find(NAME)
    return {} if row is None else _read(reader, row.interval._replace(base=row.point))


def _read(reader: TableReader, interval: PointInterval) -> dict[str, Place]:
    newest: dict[str, tuple[int, Place]] = {}
    for file in reader.files(_ARCHIVED.name, "database", NAME, interval):
        for columns, rows in reader.batches(_ARCHIVED.name, file, "database", NAME, interval):
            places = [columns.index(column.name) for column in _COLUMNS]
            point_at = columns.index("_point")
            for row in rows:
                name, generation, position, incarnation = (row[at] for at in places)
                point = row[point_at]
                if point >= newest.get(name, (-1, None))[0]:
                    newest[name] = point, Place(generation, position, incarnation)
    return {name: place for name, (_, place) in newest.items()}
