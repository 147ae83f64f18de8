"""Options of commands that read history: a point in it, and a branch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from fourfold.cli.completion import complete_branches

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class PointInHistory(click.ParamType):  # type: ignore[type-arg]
    """A seq, or a time in ISO 8601; without a time zone it is UTC, as in the output."""

    name = "SEQ|TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime:
        """Return a seq or a time; fail for anything else."""
        if isinstance(value, int | datetime):
            return value
        # Digits alone are a seq, though ISO 8601 would parse eight of them as a date.
        if str(value).isdecimal() and len(str(value)) < 20:
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither a seq (12) nor a time (2026-03-01T12:00:00Z).", param, ctx
            )
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class PointOfStore(click.ParamType):  # type: ignore[type-arg]
    """A seq, a time, or the id of a restore point: any other text."""

    name = "SEQ|TIME|POINT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime | str:
        """Return a seq, a time or the id of a restore point."""
        try:
            return PointInHistory().convert(value, param, ctx)
        except click.BadParameter:
            return str(value)


class TimeInHistory(PointInHistory):
    """A time in ISO 8601; without a time zone it is UTC, as in the output."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return a time; fail for anything else."""
        moment = super().convert(value, param, ctx)
        if isinstance(moment, int):
            self.fail(f"{value!r} is not a time (2026-03-01T12:00:00Z).", param, ctx)
        return moment


def at_option(help_text: str, name: str = "--at", *, required: bool = False) -> Decorator:
    """Return the option of a point in the history of one log."""
    return click.option(name, type=PointInHistory(), required=required, help=help_text)


def branch_option(help_text: str) -> Decorator:
    """Return the option of a branch."""
    return click.option(
        "--branch",
        default="",
        metavar="NAME",
        help=help_text,
        shell_complete=complete_branches,
    )
