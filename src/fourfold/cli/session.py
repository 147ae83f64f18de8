"""`fourfold session`: commands on sessions.

Every command takes ROOT first, and most of them the id of a session.
"""

from __future__ import annotations

import functools
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from fourfold import limits
from fourfold.cli.completion import complete_sessions
from fourfold.cli.history_options import TimeInHistory
from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.cli.session_leases import claim, list_leases, release, renew
from fourfold.cli.session_retention import delete_policy, policies, retention, set_policy
from fourfold.cli.session_search import search
from fourfold.cli.space.arguments import new_file
from fourfold.content import PayloadRef, parse_content_id
from fourfold.content.filters import decode_filter
from fourfold.errors import CorruptData, InvalidInput, NotFound, PayloadMissing
from fourfold.models.sessions import Event, LineageEdge, Sessions, SessionView, compare_heads
from fourfold.models.sessions.model import MODEL
from fourfold.models.sessions.records import GcReport, SessionInfo
from fourfold.models.sessions.request import At
from fourfold.models.sessions.transcript import (
    TranscriptEntry,
    TranscriptReader,
    activity,
    read_transcript,
    to_json,
)
from fourfold.models.sessions.transcript_formats import TranscriptFormat, iter_format, to_text
from fourfold.store import open_store

if TYPE_CHECKING:
    from fourfold.adapters.otlp import TraceReport

_CELL_CHARS: Final = 120
_TEXT_CHARS: Final = 2_000
"""Characters of one entry that are printed without `--full`."""
_BODY_INDENT: Final = 8


def session_command(
    name: str, *, rows: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command that reads one session.

    Its function gets an `Output`, the `Sessions` and the id.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, sid: str, **arguments: Any) -> None:
            with sessions_of(root) as sessions:
                function(out, sessions, sid, **arguments)

        with_sid = click.argument("sid", shell_complete=complete_sessions)(run)
        return plain_command(name, rows=rows)(root_argument(required=True)(with_sid))

    return decorate


@contextmanager
def sessions_of(root: Path) -> Iterator[Sessions]:
    """Open the sessions of a store for reading; never create the database."""
    with existing_sessions(root) as sessions:
        if sessions is None:
            raise NotFound(
                f"{root}: there are no sessions yet",
                hint="Create one in a program: `store.sessions.create_session()`.",
            )
        yield sessions


@contextmanager
def existing_sessions(root: Path, *, writes: bool = False) -> Iterator[Sessions | None]:
    """Open the sessions of a store; None if it never had one."""
    with open_store(root, mode="r") as store:
        if not MODEL.location.names(root):
            yield None
            return
        if not writes:
            yield store.sessions
            return
    with open_store(root) as store:
        yield store.sessions


def brief(value: Any) -> str:
    """Format a value as one line."""
    text = json.dumps(to_json(value), ensure_ascii=False)
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 3] + "..."


def parse_point(at: str | None) -> At:
    """Return the point that `--at` names: an event id or a head."""
    return int(at) if at is not None and at.isdecimal() and len(at) < 19 else at


@session_command("export")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this new file, which appears when it is complete; default: stdout.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["bundle", "markdown", "html", "openai"]),
    default="bundle",
    show_default=True,
    help="A bundle to import, or a transcript: Markdown, a page, or chat messages as JSON.",
)
@click.option("--at", metavar="EVENT|HEAD", help="Transcript as of this event or head.")
@click.option("--whole", is_flag=True, help="Transcript from the start, not the last compaction.")
@click.option("--full", is_flag=True, help="Transcript with payloads over 1 MiB.")
@click.option("--otlp", metavar="URL", help="Send traces to this OTLP receiver (HTTP) instead.")
@click.option("--content", is_flag=True, help="Traces with messages, results and errors.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="EVENT",
    help="Traces of turns that ended after this event; default: of all that have ended.",
)
@click.option(
    "--model-call",
    "model_calls",
    multiple=True,
    metavar="NAME",
    help="Name of a call that is a call of the model, in traces; repeatable. Default: `model`.",
)
def export_session(
    out: Output,
    sessions: Sessions,
    sid: str,
    *,
    output: Path | None,
    kind: Literal["bundle"] | TranscriptFormat,
    at: str | None,
    whole: bool,
    full: bool,
    otlp: str | None,
    content: bool,
    after: int | None,
    model_calls: tuple[str, ...],
) -> None:
    """Export the session SID: as a bundle with its descendants, as a transcript, or as traces.

    A bundle is JSON lines with every event, head, edge and payload, also of the descendants. A
    transcript is for people and other programs, with the contents of payloads. `--otlp`
    sends one trace per finished turn to an OpenTelemetry receiver; exporting again sends the same
    ids.
    """
    if otlp is not None:
        if kind != "bundle" or output is not None or at is not None or whole or full:
            raise InvalidInput("--otlp cannot be combined with a format, a file or a transcript")
        from fourfold.adapters.otlp import MODEL_CALLS, export_traces  # noqa: PLC0415 - an extra

        calls = model_calls or MODEL_CALLS
        report = export_traces(
            sessions, sid, otlp, after=after or 0, content=content, model_calls=calls
        )
        _print_traces(out, sid, otlp, report)
        return
    if content or after is not None or model_calls:
        raise InvalidInput("--content, --after and --model-call require --otlp URL")
    if output is None and out.as_json:
        raise InvalidInput("--json requires --output FILE: stdout contains the export itself")
    if kind != "bundle":
        reader = TranscriptReader(sessions, sid, parse_point(at), whole=whole, full=full)
        pieces = (text.encode() for text in iter_format(kind, reader.header, reader))
        written = _write_export(pieces, output)
        if out.as_json:
            out.document({"id": sid, "file": str(output), "format": kind, "bytes": written})
        elif output is not None:
            out.line(f"exported {sid} to {output}: {kind}, {size(written)}")
        return
    if at is not None or whole or full:
        raise InvalidInput(
            "--at, --whole and --full require a transcript",
            hint="Add --format markdown, html or openai; a bundle has the whole log.",
        )
    _export_bundle(out, sessions, sid, output)


def _print_traces(out: Output, sid: str, url: str, report: TraceReport) -> None:
    if out.as_json:
        out.document({"id": sid, "url": url, **msgspec.to_builtins(report)})
        return
    turns, spans = counted(report.turns, "turn"), counted(report.spans, "span")
    out.line(f"exported {turns} of {sid} as {spans} to {url}")
    out.line(f"--after {report.last_event} continues there")


def _export_bundle(out: Output, sessions: Sessions, sid: str, output: Path | None) -> None:
    sessions.open_session(sid)
    end = b"{}"

    def lines() -> Iterator[bytes]:
        nonlocal end
        for line in sessions.export_bundle(sid):
            end = line
            yield line

    written = _write_export(lines(), output)
    if output is None:
        return
    totals = json.loads(end)
    counts = {name: totals[name] for name in ("sessions", "events", "payloads")}
    if out.as_json:
        out.document({"id": sid, "file": str(output), **counts, "bytes": written})
        return
    out.line(f"exported {sid} to {output}: {_bundle_line(counts)}, {size(written)}")


def _write_export(pieces: Iterable[bytes], output: Path | None) -> int:
    """Write pieces to stdout or a new file, and return the number of bytes."""
    if output is None:
        return sum(map(sys.stdout.buffer.write, pieces))
    with new_file(output) as file:
        return sum(map(file.write, pieces))


@plain_command("import")
@root_argument(required=True)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def import_sessions(out: Output, root: Path, file: Path) -> None:
    """Import the sessions of the bundle FILE into the store ROOT, with their ids.

    Every digest in the file is checked before anything is written. An existing session must have
    the same history; it gets the missing events.
    """
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    with open_store(root) as store:
        done = store.sessions.import_bundle(file)
    if out.as_json:
        out.document({"root": str(root), "file": str(file), **msgspec.to_builtins(done)})
        return
    out.line(f"imported {file} into {root}: {_bundle_line(msgspec.to_builtins(done))}")


def _bundle_line(counts: dict[str, int]) -> str:
    return ", ".join(counted(count, name.removesuffix("s")) for name, count in counts.items())


_SHORT = len("sha256:") + 12


@session_command("tree")
def tree(out: Output, sessions: Sessions, sid: str) -> None:
    """Draw the descendants of the session SID: its children, and the sessions that start from it.

    A session with several parents is drawn once, and then referred to by name.
    """
    sessions.open_session(sid)
    edges: dict[str, list[LineageEdge]] = {}
    for edge in sessions.lineage_graph(sid).edges:
        edges.setdefault(edge.from_session, []).append(edge)
    seen: dict[str, dict[str, Any]] = {}
    lines, drawn = [], []
    # Each entry: the session, the edge that leads to it, the text to its left, is it the last.
    waiting: list[tuple[str, LineageEdge | None, str, bool]] = [(sid, None, "", True)]
    while waiting:
        name, through, left, last = waiting.pop()
        mark = "" if through is None else ("└─ " if last else "├─ ")
        kind = "" if through is None else f"  {through.type}"
        if name in seen:
            lines.append(f"{left}{mark}{name}{kind}  (see above)")
            continue
        seen[name] = _session(sessions, name)
        lines.append(f"{left}{mark}{name}{kind}  {_lineage_line(seen[name])}")
        below = left + ("" if through is None else ("   " if last else "│  "))
        following = edges.get(name, [])
        drawn += following
        waiting += [
            (edge.to_session, edge, below, edge is following[-1]) for edge in reversed(following)
        ]
    if out.as_json:
        shown = [{**msgspec.to_builtins(edge), "extra": to_json(edge.extra)} for edge in drawn]
        out.document({"id": sid, "sessions": list(seen.values()), "edges": shown})
        return
    for line in lines:
        out.line(line)


def _session(sessions: Sessions, sid: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": sid, "status": "elsewhere", "events": 0, "heads": []}
    try:
        view = sessions.current_view(sid)
    except NotFound:
        return facts  # An edge may lead to another store, or to a deleted session.
    heads = [{"id": head.id, "kind": head.kind, "turn_id": head.turn_id} for head in view.heads]
    return {"id": sid, "status": activity(view), "events": view.counters.event, "heads": heads}


def _lineage_line(session: dict[str, Any]) -> str:
    text = f"{session['status']}, {counted(session['events'], 'event')}"
    heads = session["heads"]
    return f"{text}, {counted(len(heads), 'head')}, {heads[-1]['id'][:_SHORT]}" if heads else text


@session_command("diff")
@click.option("--from", "one", metavar="HEAD", help="Earlier head; default: the basis of --to.")
@click.option("--to", "other", metavar="HEAD", help="Later head; default: the current head of SID.")
def diff(out: Output, sessions: Sessions, sid: str, one: str | None, other: str | None) -> None:
    """Show the changes between two heads: variables and messages.

    The heads may belong to any sessions; without options, it compares the last two heads of SID.
    """
    other = other or sessions.current_view(sid).current_head
    if other is None:
        raise NotFound(f"session {sid!r} has no head yet", hint="Finish a turn first.")
    one = one or sessions.head(other).basis
    if one is None:
        raise InvalidInput(
            f"head {other} is the first of its session", hint="Pass another one: --from HEAD."
        )
    comparison = compare_heads(sessions, one, other)
    if out.as_json:
        out.document(to_json(msgspec.structs.asdict(comparison)))
        return
    out.line(f"from {comparison.one}")
    out.line(f"to   {comparison.other}")
    if comparison.common != comparison.one:
        out.line(f"both go back to {comparison.common or 'nothing'}")
    for mark, names in (
        ("+", comparison.added),
        ("-", comparison.removed),
        ("~", comparison.changed),
    ):
        for name in names:
            out.change(f"{mark} {name}")
    for mark, messages in (("+", comparison.new_messages), ("-", comparison.gone_messages)):
        for message in messages:
            role = message.get("role", "")
            out.change(f"{mark} message {message['id']}: {role}: {brief(message)}")


@plain_command("list", rows=True)
@root_argument(required=True)
@click.option(
    "--after",
    metavar="SID",
    shell_complete=complete_sessions,
    help="Start after this session.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of sessions.",
)
@click.option("--where", metavar="FILTER", help="Only sessions whose fields match (JSON).")
@click.option("--deleted", is_flag=True, help="Include deleted sessions.")
@click.option("--prefix", default="", help="Only sessions whose ids begin with it.")
@click.option("--status", help="Only sessions with this status.")
@click.option("--kind", help="Only sessions of this kind.")
@click.option(
    "--since",
    type=TimeInHistory(),
    help="Only sessions with an event at or after this time.",
)
@click.option(
    "--order",
    type=click.Choice(["created", "-created", "updated", "-updated"]),
    default="created",
    show_default=True,
    help="By creation or by the newest event; with a minus sign, the newest first.",
)
def list_sessions(
    out: Output,
    root: Path,
    after: str | None,
    limit: int,
    where: str | None,
    *,
    deleted: bool,
    prefix: str,
    status: str | None,
    kind: str | None,
    since: datetime | None,
    order: str,
) -> None:
    """List the sessions of ROOT, by creation or by their newest events."""
    condition = None if where is None else decode_filter(where).where
    with existing_sessions(root) as sessions:
        rows: list[SessionInfo] = []
        if sessions is not None:
            # Request one more, to see if there are more.
            rows = sessions.list_sessions(
                after=after,
                limit=limit + 1,
                deleted=deleted,
                prefix=prefix,
                newest_first=order.startswith("-"),
                where=condition,
                order="updated" if order.endswith("updated") else "created",
                status=status,
                kind=kind,
                since=since,
            )
    following = rows[limit - 1].id if len(rows) > limit else None
    out.rows(
        {
            "root": str(root),
            "sessions": [msgspec.to_builtins(row) for row in rows[:limit]],
            "next_after": following,
        },
        "sessions",
        {
            "session": "id",
            "events": "events",
            "status": "status",
            "created": "created_at",
            "updated": "updated_at",
            "deleted": "deleted_at",
        },
        fields=SessionInfo.__struct_fields__,
        empty="no sessions" + (f" after {after}" if after else " yet"),
    )
    if following is not None and out.format == "text":
        out.line(f"There are more: --after {following}")


@session_command("show", rows=True)
@click.option("--at", metavar="EVENT|HEAD", help="As of this event or head.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Maximum number of entries, the newest.",
)
@click.option("--full", is_flag=True, help="Print long contents in full.")
@click.option("--markdown", is_flag=True, help="Print Markdown, with long contents in full.")
def show(
    out: Output,
    sessions: Sessions,
    sid: str,
    *,
    at: str | None,
    limit: int,
    full: bool,
    markdown: bool,
) -> None:
    """Show the session SID as a transcript, now or at a point in the past.

    The transcript contains messages, calls with their results, and the ends of turns, with the
    contents of their payloads. It starts at the newest compaction. A thread of LangGraph or a
    conversation of the OpenAI Agents SDK is shown as that library reads it.
    """
    point = parse_point(at)
    transcript = read_transcript(sessions, sid, point, limit=limit, full=full)
    if markdown:
        if out.format != "text":
            raise InvalidInput("--markdown cannot be combined with another output format")
        out.text(transcript.to_markdown())
        return
    if out.format != "text":
        view = sessions.view_at(sid, transcript.header.event_id)
        facts = _facts(view, limit, transcript.entries)
        out.rows(facts, "transcript", {}, fields=TranscriptEntry.__struct_fields__)
        return
    header = transcript.header
    out.line(
        f"{sid}: {header.activity}, {counted(header.event_id, 'event')}, "
        f"{counted(header.turns, 'turn')}"
    )
    out.line(f"current head: {header.head or 'none'}")
    if not transcript.complete:
        out.line(f"the newest {limit} entries; --limit shows more")
    _print_transcript(out, transcript.entries, full=full)


def _print_transcript(out: Output, entries: Iterable[TranscriptEntry], *, full: bool) -> None:
    """Print entries as text: a line with event, time and title, then the content, indented.

    The content is wrapped to the width of a terminal, and shortened unless `full` is True.
    """
    for entry in entries:
        out.line(f"{entry.event:>6}  {entry.at}  {entry.title}", "cyan")
        text = to_text(entry.content)
        for line in _wrapped(text if full else _shortened(text), out.width):
            out.line(" " * _BODY_INDENT + line if line else "")


def _shortened(text: str) -> str:
    left = len(text) - _TEXT_CHARS
    return text if left <= 0 else f"{text[:_TEXT_CHARS]}\n[{left} more characters: --full]"


def _wrapped(text: str, width: int | None) -> list[str]:
    lines = text.splitlines()
    if width is None:
        return lines
    room = max(width - _BODY_INDENT, 20)
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, replace_whitespace=False, break_on_hyphens=False)
        or [""]
    ]


def _facts(view: SessionView, limit: int, entries: list[TranscriptEntry]) -> dict[str, Any]:
    return {
        "id": view.id,
        "activity": activity(view),
        "session": to_json(view.session),
        "counters": msgspec.to_builtins(view.counters),
        "current_head": view.current_head,
        "vars_ref": to_json(view.vars_ref),
        "compact_from_event_id": view.compact_from_event_id,
        "error": to_json(view.error),
        "turns": to_json(view.turns[-limit:]),
        "kept_messages": to_json(list(view.kept_messages())[-limit:]),
        "transcript": msgspec.to_builtins(entries),
    }


@session_command("log", rows=True)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="EVENT",
    help="Start after this event; default: show the newest.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of events.",
)
@click.option("--follow", is_flag=True, help="Wait for new events, until interrupted.")
def log(
    out: Output, sessions: Sessions, sid: str, after: int | None, limit: int, *, follow: bool
) -> None:
    """List the events of the session SID, the newest last.

    With --follow, --json prints one JSON document a line.
    """
    newest = sessions.peek_next_id(sid) - 1
    start = max(0, newest - limit) if after is None else after
    if follow:
        _follow(out, sessions, sid, min(start, newest))
        return
    events = sessions.events_since(sid, start, limit=limit)
    record = _flat_event if out.format == "csv" else _event
    out.rows(
        {
            "id": sid,
            "events": [record(event) for event in events],
            "next_after": events[-1].id if events and events[-1].id < newest else None,
        },
        "events",
        {"event": "id", "time": "at", "type": "type", "data": _brief_data},
        fields=_EVENT_FIELDS,
        empty=f"{sid} has no events" + (f" after {start}" if start else " yet"),
    )


_EVENT_FIELDS: Final = ("id", "at", "type", "position", "data")
_TYPE_CHARS: Final = len("session/vars-snapshotted")


def _follow(out: Output, sessions: Sessions, sid: str, after: int) -> None:
    write = out.row_writer(_EVENT_FIELDS) if out.as_rows else None
    for item in sessions.follow(sid, after=after):
        if not isinstance(item, Event):
            continue
        if write is not None:
            write(_flat_event(item) if out.format == "csv" else _event(item))
        elif out.as_json:
            out.text(json.dumps(_event(item)) + "\n")
        else:
            out.line(
                f"{item.id:>6}  {item.at}  {item.type:{_TYPE_CHARS}}  {brief(to_json(item.data))}"
            )
        # A reader of a pipe needs each event without delay.
        out.flush()


def _event(event: Event) -> dict[str, Any]:
    return {**to_json(event.as_dict()), "position": event.position}


def _flat_event(event: Event) -> dict[str, Any]:
    """Return an event as a row of a CSV: what events carry differs, so it is one column."""
    return {
        "id": event.id,
        "at": event.at,
        "type": event.type,
        "position": event.position,
        "data": to_json(event.data),
    }


def _brief_data(event: dict[str, Any]) -> str:
    outside = {"id", "type", "at", "position"}
    return brief({name: value for name, value in event.items() if name not in outside})


@plain_command("payload")
@root_argument(required=True)
@click.argument("payload")
def read_payload(out: Output, root: Path, payload: str) -> None:
    """Print the value of PAYLOAD, a `payload_id` printed by `show` or `log`."""
    digest = bytes.fromhex(parse_content_id(payload))
    with sessions_of(root) as sessions:
        with sessions.log.read() as reading:
            size = reading.payload_size(digest)
        if size is None:
            raise PayloadMissing(f"payload {payload} is not in this store")
        value = to_json(sessions.read_payload(PayloadRef(payload, "message", size)))
    if out.as_json:
        out.document({"id": payload, "size": size, "value": value})
    else:
        out.line(value if isinstance(value, str) else json.dumps(value, indent=2))


@plain_command("verify")
@root_argument(required=True)
def verify(out: Output, root: Path) -> None:
    """Verify every event and all derived data.

    Nothing is changed, and the store may be in use. Exits with 8 if something is damaged.
    """
    with existing_sessions(root) as sessions:
        position = 0 if sessions is None else sessions.position()
        problems = [] if sessions is None else [*map(str, sessions.verify())]
    if out.as_json:
        document = {"root": str(root), "position": position, "ok": not problems}
        out.document({**document, "problems": problems})
    elif problems:
        for problem in problems:
            out.line(problem)
    else:
        out.line(f"the sessions of {root} are sound ({counted(position, 'event')} checked)")
    if problems:
        raise CorruptData(
            f"{root}: {counted(len(problems), 'problem')}; first: {problems[0]}",
            hint="Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`.",
        )


@plain_command("gc")
@root_argument(required=True)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=limits.SESSION_GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="Keep younger data, which a writer may still be about to refer to.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; apply no policies.")
def gc(out: Output, root: Path, grace: float, *, dry_run: bool) -> None:
    """Remove payloads without references, and the events of deleted sessions.

    Stored retention policies are applied first, and delete sessions: `fourfold session policies`
    has a dry run.
    """
    with existing_sessions(root, writes=not dry_run) as sessions:
        done = (
            GcReport(0, 0, 0, 0, dry_run)
            if sessions is None
            else sessions.gc(grace, dry_run=dry_run)
        )
    if out.as_json:
        out.document({"root": str(root), **msgspec.to_builtins(done)})
        return
    out.line(
        f"{counted(done.payloads, 'payload')} ({size(done.bytes)}) and "
        f"{counted(done.events, 'event')} of {counted(done.sessions, 'deleted session')} "
        f"{'would be removed' if dry_run else 'removed'}"
    )


SECTIONS: Final[Sections] = (
    ("Inspect sessions", ("list", "search", "show", "log", "payload", "tree", "diff")),
    ("Export and import", ("export", "import")),
    ("Own", ("claim", "renew", "release", "leases")),
    ("Maintain", ("verify", "retention", "policies", "set-policy", "delete-policy", "gc")),
)

_EPILOG: Final = """\b
Examples:
  fourfold session list ROOT
  fourfold session show ROOT SID --at 12
  fourfold session log ROOT SID --follow
  fourfold session tree ROOT SID

ROOT is an argument, --root or FOURFOLD_ROOT.
Every command takes --json and --traceback.
"""


@click.command("session", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Sessions: events, views, heads.

    A session is a log of events. Its view is a fold of them, now or as of any event or head.
    """


for _each in (
    list_sessions,
    search,
    show,
    log,
    read_payload,
    tree,
    diff,
    export_session,
    import_sessions,
    claim,
    renew,
    release,
    list_leases,
    verify,
    retention,
    policies,
    set_policy,
    delete_policy,
    gc,
):
    command.add_command(_each)
