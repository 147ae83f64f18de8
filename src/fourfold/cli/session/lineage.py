"""`fourfold session tree` and `diff`: where sessions went, and what changed on the way."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from fourfold.cli.output import Output, counted
from fourfold.cli.session.arguments import brief, plain, session_command
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Edge, Sessions, compare_heads

_SHORT = len("sha256:") + 12


@session_command("tree")
def tree(out: Output, sessions: Sessions, sid: str) -> None:
    """Draw what came out of the session SID: its children, and the sessions that start from it.

    A session that several lead to is drawn once, and named after that.
    """
    sessions.open_session(sid)
    edges: dict[str, list[Edge]] = {}
    for edge in sessions.lineage_graph(sid).edges:
        edges.setdefault(edge.from_session, []).append(edge)
    seen: dict[str, dict[str, Any]] = {}
    lines, drawn = [], []
    # Each entry: the session, the edge that leads there, what stands left of it, is it the last.
    waiting: list[tuple[str, Edge | None, str, bool]] = [(sid, None, "", True)]
    while waiting:
        name, through, left, last = waiting.pop()
        mark = "" if through is None else ("└─ " if last else "├─ ")
        kind = "" if through is None else f"  {through.type}"
        if name in seen:
            lines.append(f"{left}{mark}{name}{kind}  (see above)")
            continue
        seen[name] = _session(sessions, name)
        lines.append(f"{left}{mark}{name}{kind}  {_told(seen[name])}")
        below = left + ("" if through is None else ("   " if last else "│  "))
        following = edges.get(name, [])
        drawn += following
        waiting += [
            (edge.to_session, edge, below, edge is following[-1]) for edge in reversed(following)
        ]
    if out.as_json:
        shown = [{**msgspec.to_builtins(edge), "extra": plain(edge.extra)} for edge in drawn]
        out.document({"id": sid, "sessions": list(seen.values()), "edges": shown})
        return
    for line in lines:
        out.line(line)


def _session(sessions: Sessions, sid: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": sid, "status": "elsewhere", "events": 0, "heads": []}
    try:
        view = sessions.current_view(sid)
    except NotFound:
        return facts  # An edge may lead to another store, or to a session that was deleted.
    status = (view.session or {}).get("status", "not started")
    heads = [{"id": head.id, "kind": head.kind, "turn_id": head.turn_id} for head in view.heads]
    return {"id": sid, "status": status, "events": view.counters.event, "heads": heads}


def _told(session: dict[str, Any]) -> str:
    text = f"{session['status']}, {counted(session['events'], 'event')}"
    heads = session["heads"]
    return f"{text}, {counted(len(heads), 'head')}, {heads[-1]['id'][:_SHORT]}" if heads else text


@session_command("diff")
@click.option("--from", "one", metavar="HEAD", help="The head before; the one below --to.")
@click.option("--to", "other", metavar="HEAD", help="The head after; the current one of SID.")
def diff(out: Output, sessions: Sessions, sid: str, one: str | None, other: str | None) -> None:
    """Show what changed from one head to another: variables and messages.

    The heads may be of any sessions; without options, it is the last step of SID.
    """
    other = other or sessions.current_view(sid).current_head
    if other is None:
        raise NotFound(f"session {sid!r} has no head yet", hint="Finish a turn of it first.")
    one = one or sessions.head(other).basis
    if one is None:
        raise InvalidInput(
            f"head {other} is the first of its session", hint="Name another one: --from HEAD."
        )
    found = compare_heads(sessions, one, other)
    if out.as_json:
        out.document(plain(msgspec.structs.asdict(found)))
        return
    out.line(f"from {found.one}")
    out.line(f"to   {found.other}")
    if found.common != found.one:
        out.line(f"both go back to {found.common or 'nothing'}")
    for mark, names in (("+", found.added), ("-", found.removed), ("~", found.changed)):
        for name in names:
            out.line(f"{mark} {name}")
    for mark, messages in (("+", found.new_messages), ("-", found.gone_messages)):
        for message in messages:
            out.line(f"{mark} message {message['id']}: {message.get('role', '')}: {brief(message)}")
