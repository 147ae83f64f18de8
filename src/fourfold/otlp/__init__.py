"""OTLP over HTTP, the protocol of OpenTelemetry: spans and metrics as protobuf, sent to a receiver.

Traces of sessions (`adapters.otlp`) and of requests (`server.telemetry`) are sent by this code. The
extra `otlp` has the messages; only `sender` and `exposition` import it.
"""
