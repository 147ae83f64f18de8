"""Named SQL from `.sql` files.

A query file is plain SQL. Each query starts with a line `-- name: some_name`; the comment lines
below it say what question the query answers. `load_queries` gives an object with one attribute per
query, so that a misspelt name fails at import.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from fourfold.errors import InvalidInput, NotFound

_MARK = "-- name:"


class Queries:
    """The queries of one file, as attributes; iterating gives their names."""

    def __init__(self, origin: str, queries: dict[str, str]) -> None:
        self._origin = origin
        self._queries = queries
        # Plain attributes: a query is looked up for every statement, and a miss ends below.
        self.__dict__.update(queries)

    def __getattr__(self, name: str) -> str:
        # Private names are asked for by copying and pickling before the fields exist.
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotFound(f"{self._origin} has no query named {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def over(self, others: Queries) -> Queries:
        """These queries, and those of `others` under the names that are not among these."""
        return Queries(f"{self._origin} over {others._origin}", others._queries | self._queries)


def load_queries(package: str, filename: str = "queries.sql") -> Queries:
    """Read the named queries of `filename` inside `package`."""
    return parse_queries(f"{package}/{filename}", read_sql(package, filename))


def read_sql(package: str, filename: str) -> str:
    return resources.files(package).joinpath(filename).read_text(encoding="utf-8")


def parse_queries(origin: str, text: str) -> Queries:
    queries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.startswith(_MARK):
            name = line.removeprefix(_MARK).strip()
            if not name.isidentifier() or name.startswith("_") or name in (*queries, "over"):
                raise InvalidInput(f"{origin}: {name!r} is not a new, valid query name")
            current = queries.setdefault(name, [])
        elif current is not None and not line.lstrip().startswith("--"):
            current.append(line)
    return Queries(
        origin, {name: "\n".join(lines).strip().rstrip(";") for name, lines in queries.items()}
    )
