"""Traces of sessions for OpenTelemetry: one trace per ended turn, sent as OTLP over HTTP.

    export_traces(store.sessions, "s-1", "http://localhost:4318")

Names follow the semantic conventions for generative AI, whose status is *development*: a turn is
`invoke_agent`, a call of the model `chat`, every other call `execute_tool`; the traces of child
sessions are linked. All ids are hashes of positions in the log, so a repeated export sends the same
spans. Contents of messages and results are sent on request only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast

from msgspec import Struct

from fourfold import limits
from fourfold.adapters.session_ids import AnySessions
from fourfold.errors import NotFound
from fourfold.models.sessions import Event, Sessions
from fourfold.models.sessions.transcript import message_content, resolve_payloads, to_json
from fourfold.models.sessions.transcript_formats import to_text
from fourfold.otlp.sender import SPANS_MAX, Span, Status, endpoint_of, put_attribute, send
from fourfold.retry import Retries

MODEL_CALLS: Final = ("model",)
"""Names of calls that are calls of the model, by default."""
_STARTS_MAX: Final = 16
"""Turns of a session that started and have not ended, of which one is running."""
_RETRIES: Final = Retries(most=4, pause_s=0.5, pause_max_s=8.0)
_UNENDED: Final = frozenset({"running", "suspended"})
_IDS_MAX: Final = 64
"""Ids that are kept: those of a turn occur in each of its spans."""
_TOKENS: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}


class TraceReport(Struct, frozen=True):
    """Counts of the traces and spans that an export sent."""

    turns: int
    spans: int
    last_event: int
    """The newest event that was read; pass it as `after` to export later turns only."""


def export_traces(
    sessions: AnySessions,
    sid: str,
    url: str,
    *,
    after: int = 0,
    content: bool = False,
    model_calls: Collection[str] = MODEL_CALLS,
    service: str = "fourfold",
    headers: Mapping[str, str] | None = None,
) -> TraceReport:
    """Send a trace for each turn of a session that has ended.

    Args:
        sessions: `store.sessions`, of a folder or a server.
        sid: The id of the session.
        url: Endpoint of an OTLP receiver; `/v1/traces` is added unless it is there.
        after: Only turns that ended after this event id.
        content: Send messages, results and errors too.
        model_calls: Names of calls that are calls of the model.
        service: The `service.name` of the traces.
        headers: Headers of the requests, such as an API key.

    Raises:
        ServerUnreachable: There is no response, also after retries.
        BadAnswer: The receiver refused the request, or some of its spans.
    """
    endpoint = endpoint_of(url)
    exporter = SessionTraces(sessions, sid, content=content, model_calls=frozenset(model_calls))
    turns = spans = 0
    batch: list[Span] = []
    for event in exporter.ends(after):
        turns += 1
        for span in exporter.spans(event):
            spans += 1
            batch.append(span)
            if len(batch) == SPANS_MAX:
                send(endpoint, batch, service, headers or {}, _RETRIES)
                batch = []
    if batch:
        send(endpoint, batch, service, headers or {}, _RETRIES)
    return TraceReport(turns, spans, exporter.last_event)


@lru_cache(_IDS_MAX)
def trace_id(sid: str, turn_id: int) -> bytes:
    """Return the id of the trace of a turn."""
    return _digest(sid, turn_id)[:16]


@lru_cache(_IDS_MAX)
def span_id(sid: str, turn_id: int, event_id: int = 0) -> bytes:
    """Return the id of the span of an event in a turn; 0 is the turn itself."""
    return _digest(sid, turn_id, event_id)[:8]


def _digest(*parts: str | int) -> bytes:
    return hashlib.sha256(json.dumps(["fourfold", *parts]).encode()).digest()


class SessionTraces:
    """The ended turns of a session as spans. Only the events of one page are in memory."""

    def __init__(
        self, sessions: AnySessions, sid: str, *, content: bool, model_calls: frozenset[str]
    ) -> None:
        self._sessions, self._sid = sessions, sid
        self._content, self._model_calls = content, model_calls
        view = sessions.current_view(sid)
        self._fields = view.session or {}
        self._starts: dict[int, int] = {}
        """Events that started the turns which have not ended yet."""
        self._shared = Span()
        self.last_event = view.counters.event

    def ends(self, after: int) -> Iterator[Event]:
        """Yield, for each turn that ended after an event, the event that ended it."""
        if after > self.last_event:
            raise NotFound(
                f"session {self._sid!r}: no event {after}, the newest is {self.last_event}"
            )
        seen: set[int] = set()
        for event in self._events(after, self.last_event):
            if event.type == "turn/started" and event.entity_id is not None:
                self._starts[event.entity_id] = event.id
            if event.type != "turn/put" or event.data["turn"].get("status") in _UNENDED:
                continue
            turn_id = event.data["turn"]["id"]
            if turn_id not in seen and not self._has_ended(turn_id, after):
                yield event
            seen.add(turn_id)

    def spans_of_event(self, event: Event) -> Iterator[Span]:
        """Yield the spans of a turn if this event ended it. Events come in order."""
        turn_id = event.entity_id
        if turn_id is None:
            return
        if event.type == "turn/started":
            self._starts[turn_id] = event.id
            if len(self._starts) > _STARTS_MAX:
                del self._starts[min(self._starts)]
        elif event.type == "turn/put" and event.data["turn"].get("status") not in _UNENDED:
            self._fields = self._sessions.current_view(self._sid).session or {}
            if turn_id in self._starts or not self._has_ended(turn_id, event.id - 1):
                yield from self.spans(event)

    def _has_ended(self, turn_id: int, at: int) -> bool:
        """Return True if a turn had ended at an event: its trace is complete."""
        turns = self._sessions.view_at(self._sid, at).turns if at else []
        return len(turns) >= turn_id and turns[turn_id - 1].get("status") not in _UNENDED

    def _events(self, after: int, until: int) -> Iterator[Event]:
        while after < until:
            page = self._sessions.events(
                self._sid, after=after, until=until, limit=limits.SESSION_PAGE_EVENTS
            )
            yield from page
            after = page[-1].id

    def _start(self, turn_id: int, end: int) -> int:
        """Return the event that started a turn: the first one at which the turn exists."""
        if turn_id in self._starts:
            return self._starts.pop(turn_id)
        low, high = 1, end
        while low < high:
            middle = (low + high) // 2
            if self._sessions.view_at(self._sid, middle).counters.turn >= turn_id:
                high = middle
            else:
                low = middle + 1
        return low

    def spans(self, end: Event) -> Iterator[Span]:
        """Yield the spans of a turn by its last event, the root last."""
        turn = end.data["turn"]
        turn_id: int = turn["id"]
        start = self._start(turn_id, end.id)
        self._shared = self._share(turn_id)
        root = self._root(turn, end)
        before_ns = 0
        # The message with the task is the event before the turn.
        for event in self._events(max(0, start - 2), end.id):
            part = _part_of(event, turn_id)
            if part is None:
                continue
            if not before_ns:
                root.start_time_unix_nano = _to_ns(event.at)
                if self._content and event.type == "message/appended":
                    self._put_messages(root, "input", self._message(part))
            if event.type == "eval/added":
                yield self._call(event, part, turn_id, before_ns or _to_ns(event.at))
            elif event.type == "lineage/edge-added" and part.get("from_session") == self._sid:
                child = str(part["to_session"])
                root.links.add(trace_id=trace_id(child, 1), span_id=span_id(child, 1))
            before_ns = _to_ns(event.at)
        yield root

    def _root(self, turn: dict[str, Any], end: Event) -> Span:
        agent = self._fields.get("agent")
        name = f"invoke_agent {agent}" if isinstance(agent, str) else "invoke_agent"
        root = self._span(name, Span.SPAN_KIND_INTERNAL, turn["id"], 0)
        root.end_time_unix_nano = _to_ns(end.at)
        _put(root, "gen_ai.operation.name", "invoke_agent")
        _put(root, "gen_ai.agent.name", agent)
        _put(root, "gen_ai.request.model", self._fields.get("model"))
        _put(root, "fourfold.turn.status", turn.get("status"))
        usage = turn.get("usage")
        for kind, amount in usage.items() if isinstance(usage, dict) else ():
            _put(root, _TOKENS.get(kind, f"fourfold.usage.{kind}"), amount)
        if "error" in turn:
            self._put_error(root, turn["error"])
        elif self._content and turn.get("final_ref") is not None:
            message = self._message({"role": "assistant", "content": turn["final_ref"]})
            self._put_messages(root, "output", {**message, "finish_reason": "stop"})
        return root

    def _call(self, event: Event, call: dict[str, Any], turn_id: int, start_ns: int) -> Span:
        name = str(call.get("name", ""))
        model = self._fields.get("model")
        if name in self._model_calls:
            title = f"chat {model}" if isinstance(model, str) else "chat"
            span = self._span(title, Span.SPAN_KIND_CLIENT, turn_id, event.id)
            _put(span, "gen_ai.operation.name", "chat")
            _put(span, "gen_ai.request.model", model)
        else:
            span = self._span(f"execute_tool {name}", Span.SPAN_KIND_INTERNAL, turn_id, event.id)
            _put(span, "gen_ai.operation.name", "execute_tool")
            _put(span, "gen_ai.tool.name", name)
            _put(span, "gen_ai.tool.call.id", f"{self._sid}/{event.id}")
        span.parent_span_id = span_id(self._sid, turn_id)
        span.start_time_unix_nano = start_ns
        span.end_time_unix_nano = _to_ns(event.at)
        _put(span, "fourfold.step.id", call.get("step_id"))
        if "error" in call:
            self._put_error(span, call["error"])
        elif self._content:
            result = self._value(call.get("result_ref"))
            if name in self._model_calls:
                message = {"role": "assistant", "parts": [_text_part(result)]}
                self._put_messages(span, "output", message)
            else:
                _put(span, "gen_ai.tool.call.result", json.dumps(result, ensure_ascii=False))
        return span

    def _span(self, name: str, kind: Span.SpanKind.ValueType, turn_id: int, event_id: int) -> Span:
        span = Span()
        span.CopyFrom(self._shared)
        span.name, span.kind = name, kind
        span.span_id = span_id(self._sid, turn_id, event_id)
        return span

    def _share(self, turn_id: int) -> Span:
        """Return what all spans of a turn have."""
        span = Span(trace_id=trace_id(self._sid, turn_id))
        _put(span, "gen_ai.conversation.id", self._sid)
        _put(span, "gen_ai.provider.name", self._fields.get("provider"))
        _put(span, "fourfold.turn.id", turn_id)
        return span

    def _put_error(self, span: Span, error: Any) -> None:
        kind = error.get("type") if isinstance(error, dict) else None
        _put(span, "error.type", kind if isinstance(kind, str) else "error")
        message = error.get("message") if isinstance(error, dict) else error
        span.status.code = Status.STATUS_CODE_ERROR
        if self._content:
            span.status.message = to_text(to_json(message))

    def _put_messages(self, span: Span, direction: str, message: dict[str, Any]) -> None:
        _put(span, f"gen_ai.{direction}.messages", json.dumps([message], ensure_ascii=False))

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        part = _text_part(self._value(message_content(message)))
        return {"role": str(message.get("role") or "user"), "parts": [part]}

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return to_json(resolve_payloads(cast("Sessions", self._sessions), value, full=False))


def _part_of(event: Event, turn_id: int) -> dict[str, Any] | None:
    """Return the entity of an event if it belongs to a turn, otherwise None."""
    for name in ("turn", "message", "step", "eval", "edge"):
        part = event.data.get(name)
        if isinstance(part, dict):
            key = "id" if name == "turn" else "turn_id"
            return part if part.get(key) == turn_id else None
    return None


def _text_part(value: Any) -> dict[str, Any]:
    return {"type": "text", "content": to_text(value)}


@lru_cache(_IDS_MAX)
def _to_ns(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000) * 1_000_000


def _put(span: Span, name: str, value: Any) -> None:
    put_attribute(span.attributes, name, value)
