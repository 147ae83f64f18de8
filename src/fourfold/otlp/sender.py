"""Requests to a receiver of OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from http.client import HTTPException
from typing import Any, Final, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from fourfold._version import __version__
from fourfold.errors import (
    BadAnswer,
    Busy,
    InvalidInput,
    MissingDependency,
    ServerUnreachable,
)
from fourfold.otlp.spans import SpanRecord
from fourfold.retry import Retries

try:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
except ImportError as error:
    raise MissingDependency(
        "the export of traces and metrics requires opentelemetry-proto, which is not installed",
        hint="pip install 'fourfold[otlp]'",
    ) from error

__all__ = [
    "SPANS_MAX",
    "Span",
    "Status",
    "endpoint_of",
    "parse_headers",
    "put_attribute",
    "send",
    "send_metrics",
    "to_span",
]

SPANS_MAX: Final = 512
"""Spans of one request."""
_TIMEOUT_S: Final = 30.0
_NO_RETRIES: Final = Retries(most=0)
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_KINDS: Final = {"internal": Span.SPAN_KIND_INTERNAL, "server": Span.SPAN_KIND_SERVER}
Signal = Literal["traces", "metrics"]


def endpoint_of(url: str, signal: Signal = "traces") -> str:
    """Return the URL to which a signal is sent; raise InvalidInput for another scheme."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise InvalidInput(
            f"url: must be http or https, got {url!r:.100}",
            hint="Use the OTLP endpoint of the receiver, such as http://localhost:4318.",
        )
    path = parts.path.rstrip("/")
    for known in ("/v1/traces", "/v1/metrics"):
        path = path.removesuffix(known)
    return parts._replace(path=f"{path}/v1/{signal}", fragment="").geturl()


def parse_headers(text: str, setting: str) -> dict[str, str]:
    """Return the headers of `name=value,name=value`, the value of a setting."""
    headers = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not part.isascii() or not part.isprintable():
            raise InvalidInput(
                f"{setting} must be name=value,name=value",
                hint=f"Set {setting}, or FOURFOLD_{setting.replace('.', '_').upper()}.",
            )
        headers[name.strip()] = value.strip()
    return headers


def put_attribute(attributes: Any, name: str, value: Any) -> None:
    """Add an attribute; values that are neither text nor numbers are left out."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return
    if isinstance(value, str):
        wrapped = AnyValue(string_value=value)
    elif isinstance(value, int) and abs(value) < 2**63:
        wrapped = AnyValue(int_value=value)
    else:
        wrapped = AnyValue(double_value=float(value))
    attributes.append(KeyValue(key=name, value=wrapped))


def to_span(record: SpanRecord) -> Span:
    """Return a finished span as a message."""
    span = Span(
        name=record.name,
        kind=_KINDS[record.kind],
        trace_id=record.trace_id,
        span_id=record.span_id,
        parent_span_id=record.parent_id,
        trace_state=record.trace_state,
        start_time_unix_nano=record.started_ns,
        end_time_unix_nano=max(record.started_ns, record.ended_ns),
    )
    for name, value in record.attributes.items():
        put_attribute(span.attributes, name, value)
    if record.is_error:
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def send(
    url: str,
    spans: Collection[Span],
    service: str,
    headers: Mapping[str, str],
    retries: Retries | None = None,
) -> None:
    """Send spans in one request; raise BadAnswer if the receiver refuses some."""
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add(resource=_resource(service))
    resource.scope_spans.add(scope=_scope()).spans.extend(spans)
    response = ExportTraceServiceResponse()
    _exchange(url, message, response, headers, retries)
    if response.partial_success.rejected_spans:
        rejected = response.partial_success
        raise BadAnswer(
            f"{url}: {rejected.rejected_spans} spans were rejected: {rejected.error_message:.200}"
        )


def send_metrics(
    url: str, metrics: Iterable[Metric], service: str, headers: Mapping[str, str]
) -> None:
    """Send metrics in one request; raise BadAnswer if the receiver refuses some."""
    message = ExportMetricsServiceRequest()
    resource = message.resource_metrics.add(resource=_resource(service))
    resource.scope_metrics.add(scope=_scope()).metrics.extend(metrics)
    response = ExportMetricsServiceResponse()
    _exchange(url, message, response, headers)
    if response.partial_success.rejected_data_points:
        rejected = response.partial_success
        raise BadAnswer(
            f"{url}: {rejected.rejected_data_points} data points were rejected: "
            f"{rejected.error_message:.200}"
        )


def _resource(service: str) -> Resource:
    resource = Resource()
    put_attribute(resource.attributes, "service.name", service)
    put_attribute(resource.attributes, "service.version", __version__)
    return resource


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name="fourfold", version=__version__)


def _exchange(
    url: str,
    message: Any,
    response: Any,
    headers: Mapping[str, str],
    retries: Retries | None = None,
) -> None:
    """Send a message, and parse what the receiver answers into `response`."""
    body = message.SerializeToString()
    answer = (retries or _NO_RETRIES).run(lambda: _post(url, body, headers))
    try:
        response.ParseFromString(answer)
    except Exception as error:
        raise BadAnswer(f"{url}: the response is not OTLP: {error}") from error


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    content_type = {"content-type": "application/x-protobuf"}
    request = Request(url, body, {**headers, **content_type}, method="POST")  # noqa: S310 - checked
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - checked
            answer: bytes = response.read()
            return answer
    except HTTPError as error:
        with error:
            if error.code in _RETRYABLE:
                raise Busy(f"{url}: the receiver is busy ({error.code})") from error
            raise BadAnswer(
                f"{url}: the receiver refused the request ({error.code})",
                hint="Check the URL and the headers; the receiver must accept OTLP over HTTP.",
            ) from error
    except (URLError, HTTPException, OSError) as error:
        raise ServerUnreachable(
            f"{url}: no response: {error}",
            hint="Check the URL, and that a receiver of OTLP over HTTP listens there.",
        ) from error
