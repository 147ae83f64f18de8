"""The options of a read, checked: `format("fourfold").option(...)`.

An option that nobody knows is an error, as is a value that does not fit: a misspelt filter that is
silently ignored would give a wrong answer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.pipeline.conditions import Conditions, parse
from fourfold.pipeline.streams.published_tables import published_tables
from fourfold.pipeline.tables import ModelTables, Table, model_tables

Point = int | datetime | None
"""A point in history: a seq, a moment, or none."""

NAMES: Final = (
    "root",
    "roots",
    "objects",
    "space",
    "model",
    "table",
    "columns",
    "where",
    "branch",
    "event",
    "app",
    "trusted",
    "suppressed",
    "stream",
    "shared",
    "at",
    "since",
    "skip_bad",
    "cut",
    "partition_bytes",
    "batch_rows",
    "max_rows",
)
ALL_BRANCHES: Final = "*"
_SPECIAL: Final = {
    "branch": "Read the branch alone: the option where, \"branch = 'draft'\".",
    "event": "Read those events alone: the option where, 'event_id <= 40'.",
    "app": "Read the app alone: the option where, \"app = 'notes'\".",
    "trusted": "It says whose ratings hide objects, beside those of their owners.",
    "suppressed": "Rows as they were written are all there.",
    "stream": "It names one stream, or the streams of a pattern.",
    "shared": "It is for published records: forks with what they share (the option objects).",
}
"""Options that some tables have, and what to do with the others."""
_OF_TABLE: Final = "option."
"""How the options of a table begin that Spark creates (`CREATE TABLE ... USING fourfold`)."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for."""

    root: str | None
    roots: str | None
    space: str | None
    model: str
    table_name: str
    columns: tuple[str, ...] | None
    conditions: Conditions
    branch: str
    event: int | None
    app: str | None
    trusted: tuple[int, ...]
    suppressed: bool
    stream: str | None
    shared: bool
    objects: str | None
    at: Point
    since: Point
    skip_bad: bool
    cut: str | None
    partition_bytes: int
    batch_rows: int
    max_rows: int

    @property
    def tables(self) -> ModelTables:
        return model_tables(self.model) if self.objects is None else published_tables(self.model)

    @property
    def table(self) -> Table:
        return self.tables.table(self.table_name)

    @property
    def location(self) -> str:
        """The stores or objects of the read, for messages."""
        return self.root or self.roots or self.objects or ""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    known = plain_options(given)
    for name in known:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            raise InvalidInput(
                f"{name!r} is not an option of the source fourfold",
                hint=f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(NAMES)}.",
            )
    options = ReadOptions(
        root=known.get("root"),
        roots=known.get("roots"),
        space=known.get("space"),
        model=known.get("model", "documents" if "objects" not in known else "streams"),
        table_name=known.get("table", ""),
        columns=_names(known.get("columns")),
        conditions=Conditions(),
        branch=known.get("branch", ""),
        event=_count(known, "event", 0) or None,
        app=known.get("app"),
        trusted=_numbers(known.get("trusted", ""), "trusted"),
        suppressed=_flag(known.get("suppressed", "false"), "suppressed"),
        stream=known.get("stream"),
        shared=_flag(known.get("shared", "false"), "shared"),
        objects=known.get("objects"),
        at=point(known.get("at"), "at"),
        since=point(known.get("since"), "since"),
        skip_bad=_flag(known.get("skip_bad", "false"), "skip_bad"),
        cut=known.get("cut"),
        partition_bytes=_count(known, "partition_bytes", limits.SOURCE_PARTITION_BYTES),
        batch_rows=_count(known, "batch_rows", limits.SOURCE_BATCH_ROWS),
        max_rows=_count(known, "max_rows", limits.STREAM_BATCH_ROWS),
    )
    if not options.table_name:
        names = ", ".join(each.name for each in options.tables.tables.values() if each.public)
        raise InvalidInput("a read needs the option table", hint=f"One of: {names}.")
    options.table.chosen(options.columns)
    _refuse_misplaced(known, options)
    return replace(options, conditions=parse(known.get("where"), options.table))


def is_table(given: Mapping[str, str]) -> bool:
    """Return True for the options that Spark gives when it creates a table."""
    return any(name.lower().startswith(_OF_TABLE) for name in given)


def plain_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read by their names: of a DataFrame, or of a table being created.

    Spark repeats the options of a table as `option.NAME`, among its own properties. The path of
    `load(path)` and `LOCATION` is the root.
    """
    known = {name.lower(): value for name, value in given.items()}
    path = known.pop("path", None)
    if is_table(known):
        own = {name for name in known if name.startswith(_OF_TABLE)}
        known = {name.removeprefix(_OF_TABLE): known[name] for name in own}
        known.pop("path", None)
    if "paths" in known:
        raise InvalidInput(
            "a read takes one path", hint="For many stores give the option roots, a pattern."
        )
    if path is not None:
        root = _local(path)
        if known.get("root", root) != root:
            raise InvalidInput(f"the path {path!r} contradicts the option root, {known['root']!r}")
        known["root"] = root
    return known


def _local(path: str) -> str:
    """Return the folder that a path names; Spark may have made an address of it."""
    address = urlsplit(path)
    return unquote(address.path) if address.scheme == "file" else path


def _refuse_misplaced(known: Mapping[str, str], options: ReadOptions) -> None:
    """An option that means nothing to the table would silently not filter."""
    if options.space is not None and not options.tables.spaces:
        raise InvalidInput(
            f"{options.model} lie in no spaces: the option space is not for them",
            hint="Filter on a column of the table.",
        )
    for name in _SPECIAL:
        if name in known and name not in options.table.options:
            tables = options.tables.tables.values()
            fitting = [each.name for each in tables if name in each.options and each.public]
            raise InvalidInput(
                f"the option {name} is for {', '.join(fitting) or 'other models'}, "
                f"not for {options.table_name}",
                hint=_SPECIAL[name],
            )


def point(text: str | None, what: str) -> Point:
    """A seq or an ISO 8601 time; without a time zone it is UTC."""
    if text is None or not text.strip():
        return None
    given = text.strip()
    # Digits alone are a seq, though ISO 8601 would read eight of them as a day.
    if re.fullmatch(r"\d{1,18}", given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput(
            f"{what} {text!r} is neither a seq (12) nor a time (2026-03-01T12:00:00Z)"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str, what: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(re.fullmatch(r"\d{1,18}", part) for part in parts):
        raise InvalidInput(f"the option {what} is a list of ids, with commas, not {text!r}")
    return tuple(map(int, parts))


def _flag(text: str, what: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"the option {what} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _count(known: Mapping[str, str], what: str, default: int) -> int:
    text = known.get(what)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < 1:
        raise InvalidInput(f"the option {what} is a whole number from 1 on, not {text!r}")
    return int(text)
