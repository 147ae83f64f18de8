"""Benchmarks: each runs Fourfold beside the limit it is judged by, in the same minutes."""

from __future__ import annotations
