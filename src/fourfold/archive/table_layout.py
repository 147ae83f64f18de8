"""Archive tables: their names, columns and keys, derived from the description of a database.

The rows of one SQLite table of all databases of a model are one Delta table, `tables/<name>`. A row
has the id of its database, the id of the file (a database that was deleted and created again has
another one), what happened to the row, and the point of the publication:

    space  file_id  _op  _point  <columns of the SQLite table>

`_op` is `put`, or `delete` with the key alone. A table that is published as a whole has rows with
`whole`, or one row with `clear` if it is empty. Equal tables that a database makes itself share an
archive table, with their name in `_table`. A large value is an object: `_object` is its SHA-256.

Columns are only ever added. The configuration of the table has the default of an added column, as
`fourfold.default.<column>`: rows of files without the column have that value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.delta_schema import stated_columns
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import PublicationTable, Row, TableColumn
from fourfold.archive.sealer import IN_FILE, OBJECT
from fourfold.errors import CorruptData

TABLES: Final = "tables"
STREAM_RECORDS: Final = "streams.records"
"""The table of stream segments, which have a layout of their own; see `stream_records`."""
_PREFIXES: Final = {STREAM_RECORDS: "streams"}
FILE_ID, TABLE, OP, POINT = "file_id", "_table", "_op", "_point"
PUT, DELETE, WHOLE, CLEAR = "put", "delete", "whole", "clear"
PACKED: Final = "row"
"""Column with a whole row as JSON, for tables whose columns differ."""
VALUE: Final = "_object"
"""Column with the SHA-256 of a value that is an object."""
_ARCHIVED = {OBJECT: VALUE, IN_FILE: "_in_file"}
_DEFAULT = "fourfold.default."
_TYPES = {"TEXT": "string", "INTEGER": "int64", "REAL": "float64", "BLOB": "binary"}


class ArchiveTable(NamedTuple):
    """A Delta table of the archive."""

    name: str
    id_column: str
    """Column with the id of the database."""
    key: tuple[str, ...]
    """Key of a row within a database and `_table`; empty for a table that is published whole."""
    whole: bool
    shared: bool
    """True if it has rows of several tables of a database, which `_table` names."""
    packed: bool
    has_values: bool

    @property
    def prefix(self) -> str:
        """Prefix of its objects."""
        return table_prefix(self.name)

    @property
    def configuration(self) -> dict[str, str]:
        """Metadata of the table, for programs that only have the archive."""
        return {
            "fourfold.name": self.id_column,
            "fourfold.key": ",".join(self.key),
            "fourfold.whole": str(self.whole).lower(),
            "fourfold.table": str(self.shared).lower(),
            **stated_columns(self.stated),
        }

    @property
    def stated(self) -> tuple[str, ...]:
        """Columns with bounds in the log: id, point, and the key."""
        return (*self.fixed, *self.key)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Columns before those of the SQLite table."""
        return (self.id_column, FILE_ID, *([TABLE] if self.shared else ()), OP, POINT)


def table_prefix(name: str) -> str:
    """Return the prefix of the objects of a table."""
    return _PREFIXES.get(name, f"{TABLES}/{name}")


def archive_table(prefix: str, id_column: str, table: PublicationTable) -> ArchiveTable:
    """Return the archive table of a table of a database."""
    name = table.group or table.name
    return ArchiveTable(
        f"{prefix}.{name}",
        id_column,
        () if table.whole else table.key,
        table.whole,
        table.group is not None,
        table.packed,
        table.content is not None,
    )


def schema_of(table: ArchiveTable, columns: Sequence[TableColumn]) -> Any:
    """Return the Arrow schema of an archive table with these columns of the SQLite table."""
    pa, _ = arrow()
    fields = [(name, pa.int64() if name == POINT else pa.string()) for name in table.fixed]
    if table.packed:
        fields.append((PACKED, pa.string()))
    else:
        fields += [(column.name, getattr(pa, _TYPES[column.kind])()) for column in columns]
    if table.has_values:
        fields += [(_ARCHIVED[OBJECT], pa.string()), (_ARCHIVED[IN_FILE], pa.int64())]
    names = [name for name, _ in fields]
    if len(set(map(str.lower, names))) != len(names):
        raise CorruptData(f"archive table {table.name}: duplicate column in {', '.join(names)}")
    return pa.schema(fields)


def original_column(name: str) -> str:
    """Return the name of a column as a sealer writes it."""
    return {archived: name for name, archived in _ARCHIVED.items()}.get(name, name)


# Packed rows


def pack(columns: Sequence[TableColumn], row: Row) -> Row:
    """Return a row as one JSON value: an object by column."""
    names = [column.name for column in columns]
    values = {name: _plain(value) for name, value in zip(names, row, strict=True)}
    return (msgspec.json.encode(values).decode(),)


def unpack(text: str) -> Mapping[str, Any]:
    """Return the values of a packed row by column."""
    try:
        values: dict[str, Any] = msgspec.json.decode(text)
        return {name: _exact(value) for name, value in values.items()}
    except (msgspec.DecodeError, ValueError, AttributeError) as error:
        raise CorruptData(f"a packed row is damaged: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"real": str(value)}
    return value


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        if "blob" in value:
            return bytes.fromhex(value["blob"])
        return float(value["real"])
    return value


# Added columns


def default_options(defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration of a table for the default values of added columns."""
    return {
        f"{_DEFAULT}{name}": msgspec.json.encode(_plain(value)).decode()
        for name, value in defaults.items()
    }


def defaults_in(configuration: Mapping[str, str]) -> dict[str, Any]:
    """Return the default values of added columns, from the configuration of a table.

    A file without such a column is older than the column: its rows have this value.
    """
    return {
        name.removeprefix(_DEFAULT): _exact(msgspec.json.decode(text))
        for name, text in configuration.items()
        if name.startswith(_DEFAULT)
    }


def merged_schema(known: Any, new: Any, what: str) -> Any:
    """Return a schema with the columns of both; columns are only ever added.

    Raises:
        CorruptData: a column has changed its type.
    """
    pa, _ = arrow()
    fields = {field.name: field for field in known}
    for field in new:
        before = fields.setdefault(field.name, field)
        if before.type != field.type:
            raise CorruptData(
                f"archive table {what}: column {field.name} is {before.type}, got {field.type}"
            )
    return pa.schema(list(fields.values()))


def sorted_rows(rows: list[Row], positions: Iterable[int]) -> list[Row]:
    """Return rows in the order of their keys, given by the positions of its columns."""
    places = tuple(positions)
    return sorted(rows, key=lambda row: tuple(row[at] for at in places)) if places else rows
