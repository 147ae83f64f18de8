"""Finished spans as plain values, so that they can be recorded without the extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

SpanKind = Literal["internal", "server"]


class SpanRecord(NamedTuple):
    """A finished span."""

    name: str
    kind: SpanKind
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    """Span of which this one is a part; empty for the first of a trace."""
    trace_state: str
    started_ns: int
    ended_ns: int
    attributes: Mapping[str, str | float]
    is_error: bool = False
