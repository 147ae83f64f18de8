"""Garbage collection: removes the history of a space below a horizon, and records it."""

from __future__ import annotations
