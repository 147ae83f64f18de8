"""Streams in the pipeline: tables, a streaming source with an offset per stream, and a sink."""

from __future__ import annotations
