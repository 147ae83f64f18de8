"""The tables that a query names: by short or qualified names, and as functions of a point.

    state                        a table of the model of the query
    sessions_turns               a table of any model
    state_at(4)                  a table at a seq; documents_state_at('2026-03-01T12:00:00Z')
    state_at(4, 'draft')         and of a branch

Spark cannot call a function that reads files, so a call is replaced by the name of a view, which is
created for the query. Its arguments are constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fourfold.errors import InvalidInput
from fourfold.pipeline.models import list_models, model_tables
from fourfold.query.tables import Table

_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<call>\b(?P<name>\w+)_at\s*\(\s*(?P<point>\d+|'[^']*')\s*"
    r"(?:,\s*'(?P<branch>[^']*)'\s*)?\))",
    re.DOTALL | re.IGNORECASE,
)
_AT: Final = "fourfold_at_"
"""Beginning of the names of views of tables at a point."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """Tables of one model that a query uses, at one cut."""

    model: str
    tables: tuple[Table, ...]
    prefix: str = ""
    aliases: tuple[str, ...] = ()
    """Further prefixes under which the query names them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the views."""
        prefixes = (self.prefix, *self.aliases)
        return [f"{prefix}{table.name}" for prefix in prefixes for table in self.tables]


def words_of(query: str) -> list[str]:
    """Return the words of a query, in lower case."""
    return re.findall(r"\w+", query.lower())


def find_uses(query: str, model: str, options: Mapping[str, Any]) -> tuple[str, list[TableUse]]:
    """Return a query without calls of functions, and the tables that it uses."""
    calls: dict[tuple[str, str, str | int, str | None], TableUse] = {}
    known: dict[str, tuple[str, Table]] = {}

    def replaced(match: re.Match[str]) -> str:
        if match["call"] and not known:
            known.update(_tables_by_name(model, options.get("prefix", "")))
        found = known.get(match["name"].lower()) if match["call"] else None
        if found is None:
            return match[0]
        owner, table = found
        point = match["point"]
        at: str | int = point[1:-1] if point.startswith("'") else int(point)
        key = owner, table.name, at, match["branch"]
        if key not in calls:
            more: dict[str, Any] = {"at": at}
            if match["branch"] is not None:
                if "branch" not in table.options:
                    raise InvalidInput(f"table {table.name!r} has no branches, got {match[0]!r}")
                more["branch"] = match["branch"]
            calls[key] = TableUse(owner, (table,), f"{_AT}{len(calls) + 1}_", options=more)
        return calls[key].names[0]

    text = _TOKEN.sub(replaced, query)
    uses = [*_named(set(words_of(text)), model, options), *calls.values()]
    models = {use.model for use in uses if "at" not in use.options}
    if len(models) > 1 and _is_seq(options.get("at")):
        raise InvalidInput(
            f"at must be a time for tables of several models, got {options['at']!r}",
            hint="A seq belongs to one log.",
        )
    return text, uses


def _is_seq(at: object) -> bool:
    return isinstance(at, int) or (isinstance(at, str) and at.strip().isdigit())


def _tables_by_name(model: str, prefix: str) -> dict[str, tuple[str, Table]]:
    """Return the tables by the names that a query may use, with their models."""
    tables: dict[str, tuple[str, Table]] = {}
    for other in list_models():
        for table in model_tables(other.name).public():
            tables[f"{other.name}_{table.name}".lower()] = other.name, table
    for table in model_tables(model).public():
        tables[f"{prefix}{table.name}".lower()] = model, table
    return tables


def _named(words: set[str], model: str, options: Mapping[str, Any]) -> Iterator[TableUse]:
    """Yield the tables that a query names, model by model."""
    prefix = options.get("prefix", "")
    for other in list_models():
        qualified = f"{other.name}_"
        if other.name != model and not any(word.startswith(qualified) for word in words):
            continue
        prefixes = [prefix, qualified] if other.name == model else [qualified]
        public = model_tables(other.name).public()
        used = [
            name
            for name in dict.fromkeys(prefixes)
            if any(f"{name}{table.name}".lower() in words for table in public)
        ]
        if used:
            tables = tuple(
                table
                for table in public
                if any(f"{name}{table.name}".lower() in words for name in used)
            )
            yield TableUse(other.name, tables, used[0], tuple(used[1:]))
        elif other.name == model and "show" in words:
            yield TableUse(model, tuple(public), prefix)
