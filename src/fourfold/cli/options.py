"""Options that commands share, and the decorator that gives every command `--json`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fourfold.cli.output import Output
from fourfold.errors import InvalidConfig, NotFound, Refused
from fourfold.objects import ObjectStore, check_conditional_writes
from fourfold.settings import FILE_NAME
from fourfold.store import Store, open_store
from fourfold.store.store import remember

if TYPE_CHECKING:
    from collections.abc import Callable


def command(
    name: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command: its function gets an `Output` first; adds `--json` and `--traceback`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(*, as_json: bool, traceback: bool, **arguments: Any) -> None:
            del traceback  # The entry point reads it, also when parsing fails.
            function(Output(as_json=as_json), **arguments)

        for decorator in (
            click.option(
                "--traceback", is_flag=True, help="Show a traceback for unexpected errors."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        ):
            run = decorator(run)
        return click.command(name, cls=cls)(run)

    return decorate


def root_argument(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the argument ROOT; its default is FOURFOLD_ROOT."""
    return click.argument(
        "root",
        required=required,
        envvar="FOURFOLD_ROOT",
        type=click.Path(path_type=Path),
    )


def set_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add the repeatable option `--set NAME=VALUE`, which overrides all other settings."""
    return click.option(
        "--set",
        "flags",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="Override a setting for this command; repeatable.",
    )(function)


def _pairs(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidConfig(
                f"--set {text!r} must have the form NAME=VALUE",
                hint="For example: --set kernel.readers_max=4.",
            )
        pairs[name.strip()] = value
    return pairs


__all__ = ["objects_option", "published_store", "refuse_without_conditions", "remember"]


def objects_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--objects",
        metavar="URL",
        help="Object store: a folder, or s3://bucket/prefix; default: `objects.url`.",
    )(function)


@contextmanager
def published_store(
    root: Path,
    objects: str | None,
    *,
    publish_first: bool = False,
    make: bool = False,
    check: bool = True,
) -> Iterator[Store]:
    """Open a store that publishes.

    Unless `check` is False, the object store must be reachable and honour conditional writes.
    """
    if not make and not (root / FILE_NAME).exists():
        raise NotFound(f"{root} is not a Fourfold store", hint="Check the path.")
    with open_store(root):
        remember(root, objects)
    settings = {"archive.acknowledge": "published"} if publish_first else {}
    with open_store(root, settings=settings) as store:
        if check:
            refuse_without_conditions(store.objects)
        yield store


def refuse_without_conditions(objects: ObjectStore) -> None:
    """Raise Refused if the object store ignores conditions.

    Two nodes on such a store would overwrite each other's manifests.
    """
    check = check_conditional_writes(objects)
    if not check.honoured:
        raise Refused(
            f"the object store ignores conditional writes: {check.faults[0]}",
            hint="Publish to an object store that honours If-Match and If-None-Match.",
        )


_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_AGE: Final = re.compile(r"(\d{1,9})([smhdw])")


class Age(click.ParamType):  # type: ignore[type-arg]
    """A duration: 90s, 30m, 12h, 7d, 4w."""

    name = "AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _AGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration (90s, 30m, 12h, 7d, 4w).", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class KeepOption(click.ParamType):  # type: ignore[type-arg]
    """How much to keep: a number of the newest (1000) as an int, or an age (30d) in seconds as a
    float.
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
            message = f"{value!r} is neither a number of {self._noun} (1000) nor a duration (30d)."
            self.fail(message, param, ctx)
        return Age().convert(value, param, ctx)
