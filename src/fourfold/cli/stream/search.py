"""`fourfold stream search` and `stats`: find messages, and count them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import click

from fourfold import limits
from fourfold.cli.completion import complete_streams
from fourfold.cli.output import Output, counted, size
from fourfold.cli.stream.arguments import Place, name_argument, streams_command
from fourfold.content.filters import Filter, decode_filter
from fourfold.errors import NotFound
from fourfold.models.streams.records import Totals
from fourfold.models.streams.search.request import SEARCH_LIMIT
from fourfold.models.streams.search.results import Coverage, Hit

_WHERE: Final = click.option(
    "--where", metavar="JSON", help='Filter: {"status": "open", "total": {"$gte": 100}}.'
)
_SINCE: Final = click.option("--since", metavar="TIME", help="Only messages at or after this time.")
_UNTIL: Final = click.option("--until", metavar="TIME", help="Only messages at or before it.")


def _bounded(function: Callable[..., None]) -> Callable[..., None]:
    return _WHERE(_SINCE(_UNTIL(function)))


@streams_command("search", rows=True)
@name_argument
@click.argument("query", default="")
@_bounded
@click.option(
    "--order",
    type=click.Choice(["newest", "score"]),
    default="newest",
    show_default=True,
    help="Newest first, or the best of the newest 10,000 matches first.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, limits.PAGE_ITEMS_MAX),
    default=SEARCH_LIMIT,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option("--after", metavar="CURSOR", help="The `next` of the page before.")
@click.option("--total", is_flag=True, help="Count all matches.")
def search(
    out: Output,
    streams: Place,
    *,
    name: str,
    query: str,
    where: str | None,
    since: str | None,
    until: str | None,
    order: str,
    limit: int,
    after: str | None,
    total: bool,
) -> None:
    """Print the messages that match QUERY, the newest first.

    QUERY has words, "phrases", pre*, field:value, field:>=5, field:1..9, has:field, -not, a OR b
    and parentheses. If the time ran out, a note on stderr says where to continue.
    """
    page = streams.open(name).search(
        query,
        where=_filter(where),
        since=since,
        until=until,
        order=order,
        limit=limit,
        after=after,
        total=total,
    )
    document: dict[str, Any] = {
        "name": name,
        "items": [_row(hit) for hit in page],
        "next": page.next,
        "total": None if page.total is None else page.total._asdict(),
        "coverage": _coverage(page.coverage),
    }
    columns: dict[str, Any] = {
        "offset": "offset",
        "time": lambda row: _time(row["time_ms"]),
        "message": lambda row: json.dumps(row["value"], ensure_ascii=False),
    }
    out.rows(
        document,
        "items",
        columns,
        fields=("offset", "time_ms", "score", "value", "snippets"),
        empty="no message matches",
    )
    if out.format == "text":
        if page.total is not None:
            least = "" if page.total.exact else "at least "
            out.line(f"{least}{counted(page.total.value, 'message')} in total")
        _warn(page.coverage, page.next)


@streams_command("stats", optional=True, rows=True)
@click.argument("name", required=False, shell_complete=complete_streams)
@click.option("--by", multiple=True, metavar="FIELD", help="Field to group by; repeatable.")
@click.option("--every", metavar="INTERVAL", help="Intervals to group by: 10s, 1m, 1h or 1d.")
@click.option(
    "--measure",
    multiple=True,
    metavar="MEASURE",
    help="count, or sum, min, max, avg or p95 of a field: `p95(duration)`; repeatable.",
)
@click.option("--query", default="", help="Only messages that match, as in `stream search`.")
@_bounded
def stats(
    out: Output,
    streams: Place | None,
    *,
    name: str | None,
    by: tuple[str, ...],
    every: str | None,
    measure: tuple[str, ...],
    query: str,
    where: str | None,
    since: str | None,
    until: str | None,
) -> None:
    """Count streams, records and bytes; with NAME, group and measure its messages."""
    if name is None:
        if by or every or measure or query or where or since or until:
            raise click.UsageError("Pass NAME, the stream to aggregate.")
        _show_totals(out, Totals(0, 0, 0) if streams is None else streams.totals())
        return
    if streams is None:
        raise NotFound(f"there is no stream {name!r}")
    groups = streams.open(name).aggregate(
        query,
        by=by,
        every=every,
        measures=measure or ("count",),
        where=_filter(where),
        since=since,
        until=until,
    )
    document = {"name": name, "rows": list(groups), "coverage": _coverage(groups.coverage)}
    columns: dict[str, Any] = {column: _cell_of(column) for column in groups.columns}
    out.rows(document, "rows", columns, fields=groups.columns, empty="no message matches")
    if out.format == "text":
        _warn(groups.coverage, None)


def _show_totals(out: Output, totals: Totals) -> None:
    if out.as_json:
        out.document(totals._asdict())
    elif out.as_rows:
        out.row_writer(totals._fields)(totals._asdict())
    else:
        records = counted(totals.records, "record")
        out.line(f"{counted(totals.streams, 'stream')}, {records}, {size(totals.bytes)}")


def _filter(text: str | None) -> Filter | None:
    return None if text is None else decode_filter(text)


def _row(hit: Hit) -> dict[str, Any]:
    return {
        "offset": hit.offset,
        "time_ms": hit.time_ms,
        "score": hit.score,
        "value": hit.value,
        "snippets": {
            field: {"text": snippet.text, "highlights": snippet.highlights}
            for field, snippet in hit.snippets.items()
        },
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return coverage._asdict()


def _time(time_ms: int) -> str:
    try:
        time = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cell_of(column: str) -> Callable[[dict[str, Any]], object]:
    """Return the function that shows a column of a group."""
    if column == "time_ms":
        return lambda row: _time(row[column])
    return lambda row: "" if row[column] is None else row[column]


def _warn(coverage: Coverage, following: str | None) -> None:
    if not coverage.complete:
        more = "" if following is None else f"; continue with --after {following}"
        click.echo(f"records before {coverage.start} were not read{more}", err=True)
