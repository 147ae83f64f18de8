"""Garbage collection: giving up the past of a space below a horizon, on purpose and on record."""

from __future__ import annotations
