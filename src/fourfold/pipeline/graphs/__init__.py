"""Graphs in the pipeline: tables, the fold of current objects, and verification."""

from __future__ import annotations
