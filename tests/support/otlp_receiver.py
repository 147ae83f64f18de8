"""An OTLP receiver for tests: an HTTP server that decodes the protobuf."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver:
    """An OTLP receiver that stores what it is sent, and answers with the given statuses first."""

    def __init__(self):
        self.bodies, self.headers, self.paths = [], [], []
        self.metric_requests = []
        self.statuses = []
        self.rejected = 0
        self.on_request = lambda: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                is_metrics = self.path.endswith("/v1/metrics")
                answer = (
                    ExportMetricsServiceResponse() if is_metrics else ExportTraceServiceResponse()
                )
                if status == 200 and is_metrics:
                    receiver.metric_requests.append(ExportMetricsServiceRequest.FromString(body))
                elif status == 200:
                    receiver.bodies.append(body)
                    receiver.headers.append(dict(self.headers))
                    receiver.paths.append(self.path)
                    answer.partial_success.rejected_spans = receiver.rejected
                data = answer.SerializeToString()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                receiver.on_request()

            def log_message(self, *_arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @staticmethod
    def decode(body):
        return ExportTraceServiceRequest.FromString(body)

    def spans(self):
        """Return all received spans, checked for what OTLP demands of every one."""
        spans = []
        for body in self.bodies:
            request = self.decode(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    assert scope.scope.name == "fourfold"
                    spans += scope.spans
        for span in spans:
            assert (len(span.trace_id), len(span.span_id)) == (16, 8)
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        return spans

    def metrics(self):
        """Return the metrics of the newest request by name."""
        (resource,) = self.metric_requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
