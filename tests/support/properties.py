"""How many examples a property gets, and how often a crash test kills: all of them in the slow
suite, some in the other suites.

`make test-slow` runs every property and every slow test once more, with THOROUGH_TESTS=1 and so at
full length.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

THOROUGH = bool(os.environ.get("THOROUGH_TESTS"))


def examples(count: int) -> int:
    """Return how many of `count` examples to run: all of them in a thorough run."""
    return count if THOROUGH else max(5, count // 3)


def repeats(count: int) -> int:
    """Return how many of `count` repetitions to run: all of them in a thorough run.

    For tests that are long even with a third of them, and whose short form runs by default.
    """
    return count if THOROUGH else max(1, count // 6)


def with_slow(quick: Iterable[Any], more: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test: `quick` ones for every run, `more` for the slow suite."""
    return [*quick, *(pytest.param(value, marks=pytest.mark.slow) for value in more)]


def sample(items: Iterable[T], count: int = 2) -> list[T]:
    """Return `count` items from the first to the last; in a thorough run all of them.

    For what is long to check for each item, such as the restore of a point.
    """
    every = list(items)
    if THOROUGH or len(every) <= count:
        return every
    return [every[number * (len(every) - 1) // (count - 1)] for number in range(count)]
