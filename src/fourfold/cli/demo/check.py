"""Checks of the demo: a step that is not as expected fails."""

from __future__ import annotations


def expect(what: str, actual: object, expected: object) -> None:
    """Raise AssertionError if `actual` is not `expected`; the demo never reports what is wrong."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r:.200}, got {actual!r:.200}")
