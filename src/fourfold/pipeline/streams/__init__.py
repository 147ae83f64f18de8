"""Streams, for Spark: tables, a streaming source with an offset for each stream, and a sink."""

from __future__ import annotations
