"""`fourfold session search`: search what sessions say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import PointInHistory
from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.models.sessions.hits import SessionHit, SessionHitKind, SessionHitOrder
from fourfold.models.sessions.model import MODEL
from fourfold.models.sessions.request import At
from fourfold.store import open_store

_FIELDS: Final = SessionHit.__struct_fields__


@plain_command("search", rows=True)
@root_argument(required=True)
@click.argument("query")
@click.option("--sid", metavar="SID", help="Search this session only.")
@click.option("--prefix", default="", help="Only sessions whose ids begin with it.")
@click.option(
    "--at",
    metavar="EVENT|HEAD|TIME",
    help="As of this time; with --sid also an event id or a head.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["message", "call", "turn", "summary", "error"]),
    multiple=True,
    help="Only events of this kind; repeatable.",
)
@click.option(
    "--order",
    type=click.Choice(("score", "newest")),
    default="score",
    show_default=True,
    help="By relevance, or newest first.",
)
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--after", metavar="NEXT", help="Start after this page: `next` of the page before.")
def search(
    out: Output,
    root: Path,
    query: str,
    *,
    sid: str | None,
    prefix: str,
    at: str | None,
    kinds: tuple[SessionHitKind, ...],
    order: SessionHitOrder,
    limit: int,
    after: str | None,
) -> None:
    """Search the messages, calls, summaries, errors and ends of turns of ROOT.

    QUERY has words that must all occur, "phrases", prefixes (pre*) and -words that must not occur.
    Events that are not in the index of words are read; a server and `fourfold session gc` index
    them.
    """
    hits: list[dict[str, Any]] = []
    following = None
    with open_store(root, mode="r") as store:
        if MODEL.location.names(root):
            page = store.sessions.search(
                query,
                sid=sid,
                prefix=prefix,
                at=_parse_at(at),
                kinds=kinds or None,
                order=order,
                limit=limit,
                after=after,
            )
            hits = [msgspec.to_builtins(hit) for hit in page]
            following = page.next
    out.rows(
        {"hits": hits, "next": following},
        "hits",
        {"session": "session", "event": "event", "said by": "title", "text": _marked},
        fields=_FIELDS,
        empty="no hits",
    )
    if following is not None and out.format == "text":
        out.line(f"There are more: --after {following}")


def _parse_at(text: str | None) -> At:
    """Return an event id, the id of a head, or a time."""
    if text is None or text.startswith("sha256:"):
        return text
    return PointInHistory().convert(text, None, None)


def _marked(hit: dict[str, Any]) -> str:
    """Return the text with its matches in brackets, on one line."""
    text, shown, last = hit["text"], "", 0
    for start, end in hit["highlights"]:
        shown += f"{text[last:start]}[{text[start:end]}]"
        last = end
    return " ".join((shown + text[last:]).split())
