"""Named SQL queries from `.sql` files.

A query file is plain SQL. Each query starts with a line `-- name: some_name`; the comment lines
below describe it. `load_queries` returns an object with one attribute per query.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_MARK = "-- name:"


class Queries:
    """The queries of one file, as attributes; iteration yields their names."""

    def __init__(self, origin: str, queries: dict[str, str]) -> None:
        self._origin = origin
        self._queries = queries
        # Plain attributes are fast: a query is looked up for every statement.
        self.__dict__.update(queries)

    def __getattr__(self, name: str) -> str:
        # Copying and pickling look up private names before the fields exist.
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotFound(f"{self._origin}: unknown query {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def over(self, others: Queries) -> Queries:
        """Return the union of these queries and `others`; these take precedence."""
        return Queries(f"{self._origin} over {others._origin}", others._queries | self._queries)


@cache
def load_queries(package: str, filename: str = "queries.sql") -> Queries:
    """Read the named queries of `filename` inside `package`, once: many modules share a file."""
    return parse_queries(f"{package}/{filename}", read_sql(package, filename))


def read_sql(package: str, filename: str) -> str:
    """Read the text of `filename` inside `package`."""
    return package_folder(package).joinpath(filename).read_text(encoding="utf-8")


def package_folder(package: str) -> Traversable:
    """Return the folder of an installed package, which may be in a ZIP file.

    `importlib.resources` is for the latter alone: it imports what ZIP files require.
    """
    folder = Path(import_module(package).__path__[0])
    if folder.is_dir():
        return folder
    from importlib.resources import files  # noqa: PLC0415 - few processes have packages in ZIP files

    return files(package)


def parse_queries(origin: str, text: str) -> Queries:
    """Parse the named queries in `text`; `origin` names the file in messages."""
    queries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.startswith(_MARK):
            name = line.removeprefix(_MARK).strip()
            if not name.isidentifier() or name.startswith("_") or name in (*queries, "over"):
                raise InvalidInput(f"{origin}: duplicate or invalid query name {name!r}")
            current = queries.setdefault(name, [])
        elif current is not None and not line.lstrip().startswith("--"):
            current.append(line)
    return Queries(
        origin, {name: "\n".join(lines).strip().rstrip(";") for name, lines in queries.items()}
    )
