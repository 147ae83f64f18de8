"""Waiting until something changed that concerns certain rows of a state stream."""

from __future__ import annotations

from fourfold.models.streams.touch.records import (
    ActiveTemplate,
    Encoding,
    Entity,
    Key,
    Meta,
    Row,
    Rows,
    Template,
    Touched,
)
from fourfold.models.streams.touch.touches import Touches

__all__ = [
    "ActiveTemplate",
    "Encoding",
    "Entity",
    "Key",
    "Meta",
    "Row",
    "Rows",
    "Template",
    "Touched",
    "Touches",
]
