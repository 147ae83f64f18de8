"""`fourfold space search`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import at_option, branch_option
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import json_argument, limit_option, space_command
from fourfold.errors import InvalidInput
from fourfold.models.documents import SearchHit, Space
from fourfold.models.documents.indexes.search import SearchOrder

_FIELDS: Final = SearchHit.__struct_fields__


@space_command("search", rows=True)
@click.argument("query", required=False)
@click.option("--vector", metavar="JSON", help="Numbers to search for, instead of QUERY or too.")
@click.option("--where", metavar="FILTER", help="Only documents that match this filter (JSON).")
@branch_option("Branch to search; default: the default branch.")
@at_option("Search as of this seq or time.")
@click.option("--index", metavar="NAME", help="Index; needed if several fit.")
@click.option("--path", "paths", multiple=True, help="Only this path of the index; repeatable.")
@click.option(
    "--order",
    type=click.Choice(("score", "newest")),
    default="score",
    show_default=True,
    help="By relevance, or by the age of the text.",
)
@click.option("--after", metavar="NEXT", help="Start after this page: `next` of the page before.")
@limit_option(20)
def search(  # noqa: PLR0917
    out: Output,
    space: Space,
    query: str | None,
    vector: str | None,
    where: str | None,
    branch: str,
    at: int | datetime | None,
    index: str | None,
    paths: tuple[str, ...],
    order: SearchOrder,
    after: str | None,
    limit: int,
) -> None:
    """Search the words of documents, or find the nearest vectors, by an index.

    QUERY has words that must all occur, "phrases", prefixes (pre*) and -words that must not occur.
    With QUERY and --vector, the ranks by both are combined.
    """
    page = space.search(
        query,
        vector=None if vector is None else _numbers(vector),
        where=None if where is None else json_argument(where, "FILTER"),
        index=index,
        paths=paths or None,
        order=order,
        limit=limit,
        after=after,
        at=at,
        branch=branch,
    )
    out.rows(
        {
            "hits": [msgspec.to_builtins(hit) for hit in page],
            "total": page.total,
            "index": page.index,
            "seq": page.seq,
            "next": page.next,
        },
        "hits",
        {"id": "id", "score": lambda hit: f"{hit['score']:.3g}", "text": _snippet},
        fields=_FIELDS,
        empty="no hits",
    )
    if page.next is not None and out.format == "text":
        out.line(f"{page.total} hits. There are more: --after {page.next}")


def _numbers(text: str) -> list[float]:
    try:
        return msgspec.json.decode(text, type=list[float])
    except msgspec.MsgspecError:
        raise InvalidInput(f"--vector must be a JSON array of numbers, got {text!r:.100}") from None


def _snippet(hit: dict[str, Any]) -> str:
    """Return the first snippet with its matches in brackets, on one line."""
    if not hit["snippets"]:
        return ""
    text, shown, last = hit["snippets"][0]["text"], "", 0
    for start, end in hit["snippets"][0]["highlights"]:
        shown += f"{text[last:start]}[{text[start:end]}]"
        last = end
    return " ".join((shown + text[last:]).split())
