"""Validated options of a read: `format("fourfold").option(...)`.

Unknown options and invalid values are errors: a misspelt filter that is silently ignored would
return wrong rows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.pipeline.conditions import Conditions, parse
from fourfold.pipeline.models import DEFAULT_MODEL, model_tables
from fourfold.pipeline.streams.published_tables import MODEL as PUBLISHED_MODEL
from fourfold.pipeline.streams.published_tables import published_tables
from fourfold.query.tables import ModelTables, Table

STREAM_BATCH_ROWS: Final = 200_000
"""Approximate rows of a micro-batch; a commit is never split."""

Point = int | datetime | None
"""A point in history: a seq, a time, or None."""

NAMES: Final = (
    "root",
    "roots",
    "url",
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
_SPECIAL: Final = {
    "branch": "Select the branch with the option where: \"branch = 'draft'\".",
    "event": "Select the events with the option where: 'event_id <= 40'.",
    "app": "Select the app with the option where: \"app = 'notes'\".",
    "trusted": "It lists whose ratings hide objects, besides their owners'.",
    "suppressed": "Raw tables contain all rows.",
    "stream": "It selects one stream, or the streams that match a pattern.",
    "shared": "It applies to published records (the option objects): forks with what they share.",
}
"""Options that only some tables have, and a hint for the other tables."""
_OF_TABLE: Final = "option."
"""Prefix of the options of a table that Spark creates (`CREATE TABLE ... USING fourfold`)."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options of a read."""

    root: str | None
    roots: str | None
    urls: tuple[str, ...]
    """Archives that are read instead of stores."""
    archive_point: str | None
    """Id of a restore point, or a time, of these archives."""
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
        """The tables of the model."""
        return model_tables(self.model) if self.objects is None else published_tables(self.model)

    @property
    def table(self) -> Table:
        """The table that is read."""
        return self.tables.table(self.table_name)

    @property
    def location(self) -> str:
        """The stores or objects of the read, for messages."""
        return self.root or self.roots or self.objects or ", ".join(self.urls)


def refuse_options(options: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise InvalidInput for options that only a batch read supports."""
    given = {name.lower() for name in options}
    for name in names:
        if name in given:
            raise InvalidInput(f"option {name!r} is not supported by a stream")


def read_options(raw_options: Mapping[str, str]) -> ReadOptions:
    """Parse and check the options of a read."""
    texts = plain_options(raw_options)
    for name in texts:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            raise InvalidInput(
                f"unknown option {name!r} of the format fourfold",
                hint=f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(NAMES)}.",
            )
    urls = _urls(texts)
    at = texts.get("at", "").strip()
    archive_point = at if urls and at and not at.isdigit() else None
    options = ReadOptions(
        root=texts.get("root"),
        roots=None if urls else texts.get("roots"),
        urls=urls,
        archive_point=archive_point,
        space=texts.get("space"),
        model=texts.get("model", DEFAULT_MODEL if "objects" not in texts else PUBLISHED_MODEL),
        table_name=texts.get("table", ""),
        columns=_names(texts.get("columns")),
        conditions=Conditions(),
        branch=texts.get("branch", ""),
        event=_count(texts, "event", 0) or None,
        app=texts.get("app"),
        trusted=_numbers(texts.get("trusted", ""), "trusted"),
        suppressed=_flag(texts.get("suppressed", "false"), "suppressed"),
        stream=texts.get("stream"),
        shared=_flag(texts.get("shared", "false"), "shared"),
        objects=texts.get("objects"),
        at=None if archive_point else point(at, "at"),
        since=point(texts.get("since"), "since"),
        skip_bad=_flag(texts.get("skip_bad", "false"), "skip_bad"),
        cut=texts.get("cut"),
        partition_bytes=_count(texts, "partition_bytes", limits.SOURCE_PARTITION_BYTES),
        batch_rows=_count(texts, "batch_rows", limits.SOURCE_BATCH_ROWS),
        max_rows=_count(texts, "max_rows", STREAM_BATCH_ROWS),
    )
    if not options.table_name:
        public = (table.name for table in options.tables.tables.values() if table.public)
        raise InvalidInput("option 'table' is required", hint=f"Tables: {', '.join(public)}.")
    options.table.select_columns(options.columns)
    _refuse_misplaced(texts, options)
    return replace(options, conditions=parse(texts.get("where"), options.table))


def _urls(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the archives of a read: the option url, or roots that are URLs."""
    roots = _names(texts.get("roots")) or ()
    are_urls = [_is_url(root) for root in roots]
    if "url" not in texts and not any(are_urls):
        return ()
    if not all(are_urls) or ("url" in texts) + ("root" in texts) + ("roots" in texts) > 1:
        raise InvalidInput(
            "pass either a store, folders of stores, or URLs of archives",
            hint="Read them one by one, and union the results.",
        )
    return tuple(
        entry if ":" in entry else str(Path(entry).absolute())
        for entry in _names(texts.get("url")) or roots
    )


def _is_url(text: str) -> bool:
    return "://" in text


def is_table(raw_options: Mapping[str, str]) -> bool:
    """Return True if Spark passes these options to create a table."""
    return any(name.lower().startswith(_OF_TABLE) for name in raw_options)


def plain_options(raw_options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read by name, for a DataFrame or a table being created.

    Spark repeats the options of a table as `option.NAME`, among its own properties. The path of
    `load(path)` and `LOCATION` is the root.
    """
    options = {name.lower(): value for name, value in raw_options.items()}
    path = options.pop("path", None)
    if is_table(options):
        own = {name for name in options if name.startswith(_OF_TABLE)}
        options = {name.removeprefix(_OF_TABLE): options[name] for name in own}
        options.pop("path", None)
    if "paths" in options:
        raise InvalidInput(
            "a read accepts one path", hint="For many stores pass the option roots, a pattern."
        )
    if path is not None:
        root = _local(path)
        if options.get("root", root) != root:
            raise InvalidInput(f"path {path!r} contradicts option 'root', got {options['root']!r}")
        options["root"] = root
    return options


def _local(path: str) -> str:
    """Return the folder of a path, which Spark may have turned into a file URL."""
    address = urlsplit(path)
    return unquote(address.path) if address.scheme == "file" else path


def _refuse_misplaced(texts: Mapping[str, str], options: ReadOptions) -> None:
    """Raise InvalidInput for options that do not apply to the table: they would not filter."""
    if options.space is not None and not options.tables.spaces:
        raise InvalidInput(
            f"option 'space' is not supported by the model {options.model!r}",
            hint="Filter on a column of the table.",
        )
    for name in _SPECIAL:
        if name in texts and name not in options.table.options:
            tables = options.tables.tables.values()
            fitting = [table.name for table in tables if name in table.options and table.public]
            raise InvalidInput(
                f"option {name!r} requires table {' or '.join(fitting) or 'of another model'}, "
                f"got {options.table_name!r}",
                hint=_SPECIAL[name],
            )


def point(text: str | None, what: str) -> Point:
    """Parse a seq or an ISO 8601 time, which is UTC without a time zone."""
    if text is None or not text.strip():
        return None
    stripped = text.strip()
    # Digits alone are a seq, though ISO 8601 would read eight of them as a day.
    if re.fullmatch(r"\d{1,18}", stripped):
        return int(stripped)
    try:
        time = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidInput(
            f"{what} must be a seq (12) or a time (2026-03-01T12:00:00Z), got {text!r}"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str, what: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(re.fullmatch(r"\d{1,18}", part) for part in parts):
        raise InvalidInput(f"option {what!r} must be a comma-separated list of ids, got {text!r}")
    return tuple(map(int, parts))


def _flag(text: str, what: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"option {what!r} must be true or false, got {text!r}")
    return text.strip().lower() == "true"


def _count(texts: Mapping[str, str], what: str, default: int) -> int:
    text = texts.get(what)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < 1:
        raise InvalidInput(f"option {what!r} must be a positive integer, got {text!r}")
    return int(text)
