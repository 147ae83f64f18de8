"""Lengths of time, and amounts of history, as options take them."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_AGE: Final = re.compile(r"(\d{1,9})([smhdw])")


class Age(click.ParamType):  # type: ignore[type-arg]
    """A length of time: 90s, 30m, 12h, 7d, 4w."""

    name = "AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _AGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a length of time (90s, 30m, 12h, 7d, 4w).", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class Kept(click.ParamType):  # type: ignore[type-arg]
    """How much stays: so many of the newest (1000), as a whole number, or so much time (30d), as a
    number of seconds that is not whole.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.name = f"{noun.upper()}|AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        if str(value).isdecimal() and len(str(value)) < 19:
            return int(value)
        if _AGE.fullmatch(str(value)) is None:
            said = f"{value!r} is neither a number of {self._noun} (1000) nor a time (30d)."
            self.fail(said, param, ctx)
        return Age().convert(value, param, ctx)
