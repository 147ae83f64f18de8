"""Background export of traces: each turn that ends in a store, soon after it has ended.

    with TraceExporter(store.sessions, "http://localhost:4318", Path("traces.json")):
        ...

The exporter reads the log of all sessions from a position that it records in a file, after the
receiver has accepted the spans of the events before. So a restart sends at most one page of events
again, with the same ids. It starts with turns that end after its first start; `export_traces` sends
earlier ones. While the receiver does not answer, it waits with backoff, and nothing is buffered:
the events stay in the log.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from fourfold.adapters.otlp import MODEL_CALLS, SessionTraces
from fourfold.cache import LruCache
from fourfold.errors import BadAnswer, FourfoldError, NotFound
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.models.sessions import Event, Sessions
from fourfold.otlp.sender import SPANS_MAX, endpoint_of, send
from fourfold.retry import Attempts, Retries

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACE_EVERY_S: Final = 1.0
"""Interval at which ended turns are looked for."""
TRACE_PAGE_EVENTS: Final = 500
"""Events after which the position is recorded."""
TRACE_SESSIONS_MAX: Final = 1_000
"""Sessions whose running turns are remembered."""
_RETRIES: Final = Retries(most=None, pause_s=0.5, pause_max_s=60.0)

_log = logging.getLogger("fourfold.traces")


class TraceState(Struct):
    """Progress of a background export."""

    position: int = 0
    """Newest event whose turn, if it ended one, was sent."""
    spans: int = 0
    refused: int = 0
    """Requests that the receiver refused for good; their spans are not sent again."""
    failure: str | None = None
    """Why the last request failed; None after a success."""


class TraceExporter:
    """Sends the traces of turns that end in a store, in a thread.

    Args:
        sessions: `store.sessions` of a folder.
        url: Endpoint of an OTLP receiver; `/v1/traces` is added unless it is there.
        file: File of the position. It belongs to one receiver: another one starts with new turns.
        content: Send messages, results and errors too.
        model_calls: Names of calls that are calls of the model.
        service: The `service.name` of the traces.
        headers: Headers of the requests, such as an API key.
        every_s: Interval at which ended turns are looked for.
        retries: Pauses after failures.
    """

    def __init__(
        self,
        sessions: Sessions,
        url: str,
        file: Path,
        *,
        content: bool = False,
        model_calls: Collection[str] = MODEL_CALLS,
        service: str = "fourfold",
        headers: Mapping[str, str] | None = None,
        every_s: float = TRACE_EVERY_S,
        retries: Retries = _RETRIES,
    ) -> None:
        self._sessions, self._file = sessions, file
        self._url = endpoint_of(url)
        self._content, self._model_calls = content, frozenset(model_calls)
        self._service, self._headers = service, dict(headers or {})
        self._every_s = every_s
        self._attempts = Attempts(retries)
        self._turns: LruCache[str, SessionTraces] = LruCache(TRACE_SESSIONS_MAX)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fourfold-traces", daemon=True)
        self.state = TraceState(self._load())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        lower_thread_priority()
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self._every_s
            try:
                while self.export_page() and not self._stop.is_set():
                    pass
            except FourfoldError as error:
                if self.state.failure is None:
                    _log.warning("Traces wait: %s", error.message)
                self.state.failure = error.message
                pause = self._attempts.next_pause() or self._every_s
            except Exception as error:  # noqa: BLE001  (reported; the thread continues)
                _log.exception("The export of traces failed")
                self.state.failure = repr(error)[:200]
                pause = self._attempts.next_pause() or self._every_s
            else:
                self.state.failure = None
                self._attempts.restart()

    def export_page(self) -> bool:
        """Send the turns that ended in the next events; return True if there may be more.

        Raises:
            ServerUnreachable: The receiver does not answer; nothing is recorded.
            Busy: It is busy.
        """
        events = self._sessions.all_events_since(self.state.position, limit=TRACE_PAGE_EVENTS)
        if not events:
            return False
        batch = []
        for span in self._spans(events):
            batch.append(span)
            if len(batch) == SPANS_MAX:
                self._send(batch)
                batch = []
        if batch:
            self._send(batch)
        self.state.position = events[-1].position
        self._store()
        return len(events) == TRACE_PAGE_EVENTS

    def _spans(self, events: Collection[Event]) -> Iterator[Span]:
        for event in events:
            if event.type not in {"turn/started", "turn/put"}:
                continue
            try:
                turns = self._turns.get(event.session)
                if turns is None:
                    turns = SessionTraces(
                        *(self._sessions, event.session),
                        content=self._content,
                        model_calls=self._model_calls,
                    )
                    self._turns.put(event.session, turns)
                yield from turns.spans_of_event(event)
            except NotFound:
                # The session was deleted meanwhile.
                continue

    def _send(self, batch: list[Span]) -> None:
        try:
            send(self._url, batch, self._service, self._headers)
        except BadAnswer as error:
            # Sent again, it would be refused again, and hold up all later traces.
            self.state.refused += 1
            _log.warning("Traces were refused: %s", error.message)
        else:
            self.state.spans += len(batch)

    def _load(self) -> int:
        """Return the recorded position for this receiver; without one, the newest."""
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            if stored["url"] == self._url and type(stored["position"]) is int:
                # A restored store may end before it.
                return min(stored["position"], self._sessions.position())
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            _log.warning("%s is damaged: traces start with new turns", self._file)
        return self._sessions.position()

    def _store(self) -> None:
        text = json.dumps({"url": self._url, "position": self.state.position})
        new = self._file.with_suffix(".new")
        new.write_text(f"{text}\n", encoding="utf-8")
        new.replace(self._file)
