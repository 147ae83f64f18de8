"""Declared indexes of a space: their keys, their upkeep, and the queries that they answer."""

from __future__ import annotations
