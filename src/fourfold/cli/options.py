"""The options that commands share, and the decorator that gives every command `--json`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourfold.cli.output import Output
from fourfold.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable


def command(
    name: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., None]], click.Command]:
    """A command whose function gets an `Output` first; it takes `--json` and `--traceback`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(*, as_json: bool, traceback: bool, **arguments: Any) -> None:
            del traceback  # It is read by the entry point, which must know it when parsing fails.
            function(Output(as_json=as_json), **arguments)

        for decorator in (
            click.option("--traceback", is_flag=True, help="Show where an unexpected error arose."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        ):
            run = decorator(run)
        return click.command(name, cls=cls)(run)

    return decorate


def root_argument(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The ROOT of a store; FOURFOLD_ROOT stands in when it is left out."""
    return click.argument(
        "root",
        required=required,
        envvar="FOURFOLD_ROOT",
        type=click.Path(path_type=Path),
    )


def set_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--set kernel.readers_max=4`, as often as wanted: the strongest layer of settings."""
    return click.option(
        "--set",
        "flags",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="Override a setting for this command; may be given several times.",
    )(function)


def _pairs(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidConfig(
                f"--set {text!r} has no value",
                hint="Write it as --set NAME=VALUE, for example --set kernel.readers_max=4.",
            )
        pairs[name.strip()] = value
    return pairs
