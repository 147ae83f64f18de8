"""Routes of the server itself: health, metrics, audit log, API description, kinds of errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from fourfold.errors import FourfoldError, InvalidInput, NotFound, PublisherFenced
from fourfold.kernel import MetricsReading, prometheus_text
from fourfold.models.streams.validation import JSON
from fourfold.server import errors, health
from fourfold.server.audit import read_entries
from fourfold.server.auth import Access
from fourfold.server.request import Reply, Request, Response, json_response
from fourfold.server.request_metrics import Family, Sample, format_families
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.errors import Health, HealthError, ObjectsHealth, ProblemKind
from fourfold.wire.store import AuditPage, AuditQuery

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher
    from fourfold.server.streams import StreamProtocol


class Diagnostics:
    """Handlers of the server itself."""

    def __init__(
        self,
        protocol: StreamProtocol,
        workers: Workers,
        access: Access | None,
        publishing: ServerPublisher | None,
        transport: str,
        *,
        database_metrics: Callable[[], Iterable[MetricsReading]],
    ) -> None:
        self._protocol = protocol
        self._streams = protocol.streams
        self._workers = workers
        self._access = access
        self._publishing = publishing
        """Publisher of the store, if there is one."""
        self._transport = transport
        """Transport of the requests, as reported by `/health`."""
        self._database_metrics = database_metrics
        """Returns the metrics of the databases by model."""
        self._started_at_ms = time.time_ns() // 1_000_000

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    async def health(self, request: Request) -> Response:
        """Return the health of the server.

        Names, and messages that may contain them, are only for keys that may read every stream,
        and those of databases for keys that may read the store.
        """
        failure = (
            self._streams.database.health().reason()
            or self._streams.sweep_failure
            or self._streams.subscriptions.failure
        )
        ready = failure is None
        failing = self._streams.unpublished() if self._streams.unpublished is not None else {}
        access = self._access
        detailed = access is None or access.may_read_all(request, "streams")
        store_detailed = access is None or access.may_read_all(request, "store")
        publishing = self._publishing
        # A stream that cannot be published is still served.
        document = Health(
            ok=ready,
            error=_health_error(failure, detailed=detailed),
            front=self._transport,
            unpublished_count=len(failing),
            fenced_count=sum(isinstance(error, PublisherFenced) for error in failing.values()),
            databases=None
            if publishing is None
            else health.databases_health(publishing.backup, detailed=store_detailed),
            objects=None
            if publishing is None
            else ObjectsHealth(
                ok=publishing.failure is None,
                error=_health_error(publishing.failure, detailed=store_detailed),
            ),
            started_at_ms=self._started_at_ms,
            free_bytes=disk_usage(self._streams.database.path.parent).free
            if store_detailed
            else UNSET,
            unpublished=sorted(failing) if detailed else UNSET,
        )
        return json_response(document, 200 if ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """Return the metrics in the Prometheus text format."""
        # The first call imports the library of Prometheus.
        text = await self._workers.run(self.metrics_text)
        return Response(200, {"content-type": "text/plain; version=0.0.4"}, text.encode())

    def metrics_text(self) -> str:
        """Return the metrics as they are now, for any thread."""
        text = prometheus_text(self._database_metrics(), "model")
        text += format_families(self._families())
        if self._publishing is not None:
            text += health.metrics_text(self._publishing.backup)
        return text

    def _families(self) -> Iterator[Family]:
        """Return the metrics of the requests and of what the server holds for them."""
        protocol = self._protocol
        observer = protocol.observer
        yield from observer.metrics.families()
        if observer.telemetry is not None:
            yield from observer.telemetry.families()
        failing = self._streams.unpublished() if self._streams.unpublished is not None else {}
        for name, description, value in (
            ("http_connections", "Open connections.", protocol.connections.count),
            ("http_body_bytes", "Bytes of bodies that are being received.", protocol.budget.held),
            ("worker_requests", "Requests that run in a worker or wait.", self._workers.count),
            ("unpublished_streams", "Streams that currently fail to publish.", len(failing)),
        ):
            yield Family(f"fourfold_{name}", "gauge", description, [Sample("", (), value)])
        refused = protocol.connections.refused
        text = "Connections refused because there were too many."
        samples = [Sample("", (), refused)]
        yield Family("fourfold_http_connections_refused_total", "counter", text, samples)
        outcomes = sorted(protocol.control.webhook_outcomes.items())
        yield Family(
            "fourfold_webhook_calls_total",
            "counter",
            "Calls of webhooks by outcome.",
            [Sample("", (("outcome", outcome),), count) for outcome, count in outcomes],
        )

    async def list_audit(self, _request: Request, query: AuditQuery) -> Reply:
        """Return a page of the audit log."""
        page = await self._workers.run(self._audit_page, query)
        return Reply(page, is_large=True)

    def _audit_page(self, query: AuditQuery) -> AuditPage:
        root = self.root()
        audit = self._protocol.observer.audit
        if audit is not None:
            audit.flush()
        return read_entries(
            root,
            limit=query.limit,
            before=None if query.cursor is UNSET else query.cursor,
            key=None if query.key is UNSET else query.key,
            operation=None if query.operation is UNSET else query.operation,
            refused=query.refused == "true",
        )

    def root(self) -> Path:
        """Return the folder of the store."""
        return self._streams.database.path.parent.parent

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        response_headers = {"content-type": JSON, "cache-control": "public, max-age=300"}
        return Response(200, response_headers, self._protocol.openapi_document(request.root))

    async def problem(self, _request: Request, kind: str) -> Response:
        """Return the meaning of a kind of error."""
        return json_response(errors.problem_kind(kind))


def _health_error(error: FourfoldError | None, *, detailed: bool) -> HealthError | None:
    """Return an error as `/health` reports it: only its kind unless `detailed`."""
    if error is None:
        return None
    if not detailed:
        return HealthError(kind=error.kind, retryable=error.retryable)
    return HealthError(**errors.redact_paths(error).as_dict())  # type: ignore[arg-type]


_ROUTES: Final = (
    Route(
        *("GET", "/health", Diagnostics.health),
        operation="health",
        summary="Check the health of the server.",
        scope="public",
        ok={
            200: Ok("The server is healthy.", Health),
            503: Ok("The server is unhealthy; the body has the error.", Health),
        },
    ),
    Route(
        *("GET", "/metrics", Diagnostics.metrics),
        operation="metrics",
        summary="Get metrics in the Prometheus text format.",
        scope="metrics",
        ok={200: Ok("The metrics.", "text", content_type="text/plain")},
    ),
    Route(
        *("GET", "/v1/audit", Diagnostics.list_audit),
        operation="list_audit",
        summary="List the newest entries of the audit log: writes and refused requests.",
        scope="audit",
        model="store",
        query=AuditQuery,
        ok={200: Ok("A page of the audit log.", AuditPage)},
        errors=(InvalidInput,),
    ),
    Route(
        *("GET", "/openapi.json", Diagnostics.openapi),
        operation="openapi",
        summary="Get this OpenAPI document.",
        scope="public",
        ok={200: Ok("The document.", "object")},
    ),
    Route(
        *("GET", f"{errors.PROBLEMS}{{kind}}", Diagnostics.problem),
        operation="problem",
        summary="Get the meaning of a kind of error.",
        scope="public",
        ok={200: Ok("The kind.", ProblemKind)},
        errors=(NotFound,),
    ),
)
