"""The event loops that coroutines are measured on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bench.machine import uvloop_version

Start = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine to its end on a new event loop."""


def loops() -> tuple[str, ...]:
    """The loops that can be had here, the faster first."""
    return ("uvloop", "asyncio") if uvloop_version() else ("asyncio",)


def starter(loop: str) -> Start:
    if loop == "asyncio":
        return asyncio.run
    import uvloop

    start: Start = uvloop.run
    return start
