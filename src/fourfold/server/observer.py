"""Observation of requests: each is counted, audited if it may have written, and logged if slow.

With a receiver for them, the spans of admitted requests are recorded, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.server.audit import AuditLog, make_entry
from fourfold.server.errors import status_of
from fourfold.server.key_store import Key
from fourfold.server.request import Request
from fourfold.server.request_metrics import RequestMetrics
from fourfold.server.request_traces import RequestTrace
from fourfold.server.routes import Route
from fourfold.server.telemetry import Telemetry
from fourfold.settings import ServerSettings

_MANY: Final = frozenset({"append", "sync_pull", "sync_reconcile"})
"""Operations that are not entries of the audit log: plain appends, and reads with a body."""
_NOT_AUDITED: Final = frozenset({"public", "read", "query", "metrics", "audit"})
"""Scopes of routes that write nothing, whatever their method."""
_log = logging.getLogger("fourfold.server")


class Observer:
    """Metrics, traces, audit log and log of the requests of one server."""

    def __init__(
        self,
        audit: AuditLog | None = None,
        slow_s: float = limits.SLOW_REQUEST_S,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.metrics = RequestMetrics()
        self.audit = audit
        self.telemetry = telemetry
        """Export of traces and metrics, if there is a receiver for them."""
        self.tracer = None if telemetry is None else telemetry.tracer
        self._slow_s = slow_s

    @classmethod
    def from_settings(
        cls, settings: ServerSettings, root: Path, otlp_url: str | None = None
    ) -> Self:
        """Return the observer of a server whose store is in `root`."""
        audit = AuditLog(root, settings.audit_bytes)
        telemetry = Telemetry.from_settings(settings, otlp_url)
        return cls(audit, settings.slow_request_ms / 1000, telemetry)

    @contextmanager
    def running(self, metrics_text: Callable[[], str]) -> Iterator[None]:
        """Write the audit log, and export, until the block ends.

        Args:
            metrics_text: Returns what `GET /metrics` would.
        """
        with ExitStack() as stack:
            if self.audit is not None:
                stack.enter_context(self.audit.running())
            if self.telemetry is not None:
                stack.enter_context(self.telemetry.running(metrics_text))
            yield

    def answered(
        self,
        route: Route,
        key: Key | None,
        request: Request,
        *,
        status: int,
        started: float,
        error: FourfoldError | None = None,
        trace: RequestTrace | None = None,
    ) -> None:
        """Record the response to an admitted request, which began at `started`."""
        if trace is not None and self.tracer is not None:
            kind = "" if error is None else error.kind
            self.tracer.end(trace, route, status=status, error=kind)
        metrics, method = self.metrics, request.method
        metrics.responses[method, route.path, status] += 1
        if not is_live(request):
            seconds = time.perf_counter() - started
            metrics.latency(method, route.path).record(seconds)
            if seconds > self._slow_s:
                fields = {"operation": route.operation, "path": request.path, "status": status}
                _log.warning(
                    "slow request: %s %s: %.0f ms",
                    *(method, request.path, seconds * 1000),
                    extra={"fields": {**fields, "ms": round(seconds * 1000)}},
                )
        if self.audit is not None and is_audited(route):
            self.audit.record(
                make_entry(
                    *(route.operation, method, request.path),
                    key="" if key is None else key.id,
                    address=request.client,
                    status=status,
                    error=error,
                )
            )

    def begin(self, request: Request) -> RequestTrace | None:
        """Return the trace of an admitted request; None if it is not recorded."""
        return None if self.tracer is None else self.tracer.begin(request.headers)

    def refused(self, request: Request, error: FourfoldError, operation: str = "") -> None:
        """Record a request that was refused before its route ran."""
        self.metrics.refused[error.kind] += 1
        if self.audit is not None:
            self.audit.record_refusal(
                make_entry(
                    *(operation, request.method, request.path),
                    key=str(error.details.get("key", "")),
                    address=request.client,
                    status=status_of(type(error)),
                    error=error,
                )
            )


def is_audited(route: Route) -> bool:
    """Return True if requests of a route are entries of the audit log."""
    return (
        route.method not in {"GET", "HEAD"}
        and route.scope not in _NOT_AUDITED
        and route.operation not in _MANY
    )


def is_live(request: Request) -> bool:
    """Return True for a request that waits for what has not happened yet."""
    return "live=" in request.query or request.header("accept") == "text/event-stream"
