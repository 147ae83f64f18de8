"""Export of spans and metrics of a server to an OTLP receiver, in a thread of low priority.

Spans are sent at least once a second, metrics once per interval. While the receiver does not
answer, the exporter waits with backoff: spans wait in the bounded queue of the tracer, and metrics
are not sent late, since the next ones have the same counters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from fourfold.errors import BadAnswer, FourfoldError
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.retry import Attempts, Retries
from fourfold.server.request_metrics import Family, Sample
from fourfold.server.request_traces import Tracer

if TYPE_CHECKING:
    from fourfold.otlp.spans import SpanRecord
    from fourfold.settings import ServerSettings

EXPORT_EVERY_S: Final = 1.0
"""Interval at which finished spans are sent."""
_RETRIES: Final = Retries(most=None, pause_s=0.5, pause_max_s=60.0)
_log = logging.getLogger("fourfold.telemetry")


class Telemetry:
    """Traces and metrics of one server.

    Args:
        url: Endpoint of an OTLP receiver; `/v1/traces` and `/v1/metrics` are added.
        share: Share of the requests without `traceparent` that are recorded.
        metrics_s: Interval at which metrics are sent; 0 sends none.
        headers: Headers of the requests, such as an API key.
        service: The `service.name` of traces and metrics.
    """

    def __init__(
        self,
        url: str,
        *,
        share: float = 1.0,
        metrics_s: float = 60.0,
        headers: Mapping[str, str] | None = None,
        service: str = "fourfold",
        every_s: float = EXPORT_EVERY_S,
        retries: Retries = _RETRIES,
    ) -> None:
        # Imported here: the extra is needed only by a server that exports.
        from fourfold.otlp import exposition, sender  # noqa: PLC0415

        self._sender, self._exposition = sender, exposition
        self._traces_url = sender.endpoint_of(url, "traces")
        self._metrics_url = sender.endpoint_of(url, "metrics")
        self._headers, self._service = dict(headers or {}), service
        self._metrics_s, self._every_s = metrics_s, every_s
        self._attempts = Attempts(retries)
        self._unsent: list[SpanRecord] = []
        """Spans of a request that failed; they are sent again."""
        self._started_ns = time.time_ns()
        self._stop = threading.Event()
        self.tracer = Tracer(share)
        self.outcomes: Counter[str] = Counter()
        """Spans and requests with metrics by outcome."""
        self.failure: str | None = None
        """Why the last request failed; None after a success."""

    @classmethod
    def from_settings(cls, settings: ServerSettings, url: str | None = None) -> Self | None:
        """Return the telemetry of a server; None if there is no receiver."""
        url = url or settings.otlp_url
        if url == "none":
            return None
        from fourfold.otlp.sender import parse_headers  # noqa: PLC0415 - an extra

        headers = settings.otlp_headers
        return cls(
            url,
            share=settings.otlp_share,
            metrics_s=settings.otlp_metrics_s,
            headers=None if headers == "none" else parse_headers(headers, "server.otlp_headers"),
        )

    @contextmanager
    def running(self, metrics_text: Callable[[], str]) -> Iterator[None]:
        """Record and send until the block ends; `metrics_text` returns what `/metrics` would."""
        thread = threading.Thread(
            target=self._run, args=(metrics_text,), name="fourfold-telemetry", daemon=True
        )
        self.tracer.start()
        thread.start()
        try:
            yield
        finally:
            self.tracer.stop()
            self._stop.set()
            thread.join()

    def families(self) -> list[Family]:
        """Return the metrics of the export itself."""
        counts = Counter(self.outcomes)
        counts["spans_dropped"] += self.tracer.dropped
        samples = [
            Sample("", (("outcome", outcome),), counts[outcome])
            for outcome in ("spans_sent", "spans_refused", "spans_dropped", "metrics_sent")
        ]
        text = "Spans, and requests with metrics, for the OTLP receiver, by outcome."
        return [Family("fourfold_otlp_total", "counter", text, samples)]

    def _run(self, metrics_text: Callable[[], str]) -> None:
        lower_thread_priority()
        next_metrics = time.monotonic() + self._metrics_s
        pause = self._every_s
        while not self._stop.wait(pause):
            pause = self._every_s
            try:
                self._send_spans()
                if self._metrics_s and time.monotonic() >= next_metrics:
                    next_metrics = time.monotonic() + self._metrics_s
                    self._send_metrics(metrics_text())
            except Exception as error:  # noqa: BLE001  (reported; the thread continues)
                self._report(error)
                pause = self._attempts.next_pause() or self._every_s
            else:
                self.failure = None
                self._attempts.restart()
        self._send_last(metrics_text)

    def _send_last(self, metrics_text: Callable[[], str]) -> None:
        """Send what is left when the server stops, without a retry."""
        try:
            if self.failure is None:
                self._send_spans()
                if self._metrics_s:
                    self._send_metrics(metrics_text())
        except Exception as error:  # noqa: BLE001  (reported; the server stops)
            self._report(error)

    def _report(self, error: Exception) -> None:
        message = error.message if isinstance(error, FourfoldError) else repr(error)[:200]
        if self.failure is None:
            _log.warning("traces and metrics wait: %s", message)
        self.failure = message

    def _send_spans(self) -> None:
        """Send all finished spans, some in each request."""
        sender = self._sender
        while self._unsent or self.tracer.waiting:
            self._unsent = self._unsent or self.tracer.take(sender.SPANS_MAX)
            self._send_batch(self._unsent)
            self._unsent = []

    def _send_batch(self, records: Collection[SpanRecord]) -> None:
        sender = self._sender
        spans = list(map(sender.to_span, records))
        try:
            sender.send(self._traces_url, spans, self._service, self._headers)
        except BadAnswer as error:
            # Sent again, they would be refused again, and hold up all later ones.
            self.outcomes["spans_refused"] += len(spans)
            _log.warning("spans were refused: %s", error.message)
        else:
            self.outcomes["spans_sent"] += len(spans)

    def _send_metrics(self, text: str) -> None:
        metrics = self._exposition.metrics_of(text, self._started_ns, time.time_ns())
        self._sender.send_metrics(self._metrics_url, metrics, self._service, self._headers)
        self.outcomes["metrics_sent"] += 1
