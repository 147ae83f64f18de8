"""Mutate everything that can be mutated in a returned value.

A store must not notice: readers own what they receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fourfold.models.sessions import Event, SessionView

_VIEW_PARTS = ("session", "vars_ref", "error", "state")
_VIEW_LISTS = ("messages", "turns", "steps", "evals", "heads", "edges", "events")


def mutate(value: Any) -> None:
    """Change every dict and list in a value, in records and in whole views, in place."""
    if isinstance(value, SessionView):
        for name in (*_VIEW_PARTS, *_VIEW_LISTS):
            mutate(getattr(value, name))
        mutate(list(value.kept_messages()))
        mutate(value.materialize())
    elif isinstance(value, Event):
        mutate(value.data)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            mutate(getattr(value, name))
    else:
        _mutate_container(value)


def _mutate_container(value: Any) -> None:
    if isinstance(value, dict):
        mutate(list(value.values()))
        value["mutated by a reader"] = True
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            mutate(item)
        if isinstance(value, list):
            value.append("mutated by a reader")
