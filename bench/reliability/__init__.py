"""Reliability of a server: histories under faults, fuzzing, idle readers, and an hour of load."""

from __future__ import annotations
