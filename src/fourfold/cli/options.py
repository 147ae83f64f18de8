"""Options that commands share, and the decorator that gives every command `--json`."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from fourfold.cli.output import Format, Output
from fourfold.errors import InvalidConfig, NotFound, Refused
from fourfold.settings import FILE_NAME

if TYPE_CHECKING:
    from fourfold.objects import ObjectStore
    from fourfold.store import Store

_ROOT_VARIABLE: Final = "FOURFOLD_ROOT"
_URLS: Final = ("http://", "https://")
COMMAND_RETRY_S: Final = 2.0
"""Total time of the retries of a command."""


def is_url(root: str) -> bool:
    """Return True if ROOT is the address of a server."""
    return root.startswith(_URLS)


class StoreCommand(click.Command):
    """A command that finds ROOT by one rule, if it takes a ROOT.

    1. `--root ROOT`; then the arguments do not include it.
    2. The argument ROOT, if there are more arguments than the other parameters take.
    3. FOURFOLD_ROOT, if there are no more arguments than the other parameters require.

    In between, which only commands with optional arguments allow, the first argument is ROOT unless
    FOURFOLD_ROOT is set and the argument is neither the folder of a store nor a URL.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ROOT may be an argument, an option or a variable."""
        if ctx.resilient_parsing and args and self._takes_value(args[-1]):
            # The value of the last option is being completed; without it, parsing stops there.
            args = args[:-1]
        root = next((param for param in self.params if isinstance(param, RootArgument)), None)
        if root is not None:
            ctx.meta[_AS_ARGUMENT] = self._has_root_argument(ctx, root, args)
        return super().parse_args(ctx, args)

    def _takes_value(self, word: str) -> bool:
        return any(
            isinstance(param, click.Option) and not param.is_flag and word in param.opts
            for param in self.params
        )

    def _has_root_argument(self, ctx: click.Context, root: RootArgument, args: list[str]) -> bool:
        options = [param for param in self.params if not isinstance(param, click.Argument)]
        words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
        probe = click.Command(self.name, params=[*options, words])
        values, _, _ = probe.make_parser(ctx).parse_args(list(args))
        if isinstance(values.get(_ROOT_OPTION), str):
            return False
        parsed = values.get("words")
        arguments = parsed if isinstance(parsed, tuple) else ()
        others = [
            param
            for param in self.params
            if isinstance(param, click.Argument) and not isinstance(param, RootArgument)
        ]
        required = sum(max(param.nargs, 1) for param in others if param.required)
        most = math.inf if any(param.nargs < 0 for param in others) else len(others)
        has_default = root.value_from_envvar(ctx) is not None
        if ctx.resilient_parsing and arguments:
            # The word that is being completed does not count yet.
            return not has_default or _is_store(arguments[0])
        if len(arguments) <= required:
            return False
        return len(arguments) > most or not has_default or _is_store(arguments[0])


def _is_store(root: str) -> bool:
    return is_url(root) or (Path(root) / FILE_NAME).is_file()


_AS_ARGUMENT: Final = "fourfold.cli.root_is_argument"
_ROOT_OPTION: Final = "root_option"


class RootArgument(click.Argument):
    """The argument ROOT, which `--root` or FOURFOLD_ROOT may give instead."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the argument to a parser."""
        if ctx.meta.get(_AS_ARGUMENT, True):
            super().add_to_parser(parser, ctx)

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the value, and where it comes from."""
        if isinstance(opts.get(_ROOT_OPTION), str):
            return opts[_ROOT_OPTION], ParameterSource.COMMANDLINE
        value, source = super().consume_value(ctx, opts)
        if ctx.resilient_parsing and source is ParameterSource.ENVIRONMENT:
            # Completion then continues with the next argument.
            source = ParameterSource.COMMANDLINE
        return value, source

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the folder of the store; fail if there is none."""
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            arguments = [param for param in ctx.command.params if isinstance(param, click.Argument)]
            expected = " ".join(param.human_readable_name for param in arguments)
            raise click.UsageError(
                f"Missing argument, expected {expected}. Pass ROOT, the folder of the store, as "
                f"an argument or with --root, or set {_ROOT_VARIABLE}.",
                ctx,
            ) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a folder."""
        del ctx
        return [CompletionItem(incomplete, type="dir")]


_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_ROWS: Final = (
    click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV, with a header."),
    click.option("--ndjson", "as_ndjson", is_flag=True, help="Print each row as a line of JSON."),
)
_TRACEBACK: Final = click.option(
    "--traceback", is_flag=True, help="Show a traceback for unexpected errors."
)


def command(name: str, *, rows: bool = False) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command: its function gets an `Output` first; adds `--json` and `--traceback`.

    A command that prints a list of `rows` with `Output.rows` also takes `--csv` and `--ndjson`.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(*, traceback: bool, **arguments: Any) -> None:
            del traceback  # The entry point reads it, also when parsing fails.
            output = Output(_output_format(arguments))
            function(output, **arguments)

        for decorator in (_TRACEBACK, *reversed(_ROWS if rows else ()), _JSON):
            run = decorator(run)
        return click.command(name, cls=StoreCommand)(run)

    return decorate


def _output_format(arguments: dict[str, Any]) -> Format:
    """Take the options that choose a format from the arguments, and return the format."""
    formats: tuple[Format, ...] = ("json", "csv", "ndjson")
    chosen = [name for name in formats if arguments.pop(f"as_{name}", False)]
    if len(chosen) > 1:
        raise click.UsageError("Pass only one of --json, --csv and --ndjson.")
    return chosen[0] if chosen else "text"


def root_argument(
    *, required: bool, new: bool = False, url: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ROOT: an argument, the option `--root`, or FOURFOLD_ROOT.

    With `new`, ROOT is a folder to create, which is never FOURFOLD_ROOT. With `url`, it may be the
    address of a server, and is passed as text.
    """
    kind = click.STRING if url else click.Path(path_type=Path)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        option = click.option(
            "--root",
            _ROOT_OPTION,
            metavar="ROOT",
            expose_value=False,
            help="Folder of the store, instead of the argument ROOT.",
        )
        argument = click.argument(
            "root",
            cls=RootArgument,
            required=required,
            envvar=None if new else _ROOT_VARIABLE,
            is_eager=True,
            type=kind,
        )
        return argument(option(function))

    return decorate


def open_or_connect(root: str, key: str | None) -> AbstractContextManager[Any]:
    """Open a store for reading, or connect to a server if `root` is a URL."""
    if is_url(root):
        from fourfold.client import connect  # noqa: PLC0415 - an extra

        return connect(root, key, retry_for=COMMAND_RETRY_S)
    from fourfold.store import open_store  # noqa: PLC0415 - most commands open a folder

    return open_store(root, mode="r")


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


__all__ = ["objects_option", "published_store", "refuse_without_conditions"]


def objects_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option of the object store to a command."""
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
    from fourfold.store.store import (  # noqa: PLC0415 - it imports every model
        open_store,
        remember,
    )

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
    from fourfold.objects import check_conditional_writes  # noqa: PLC0415 - few commands need it

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
        """Return a duration such as `7d` in seconds."""
        match = _AGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration (90s, 30m, 12h, 7d, 4w).", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class KeepOption(click.ParamType):  # type: ignore[type-arg]
    """Retention: a number of the newest items (1000) as an int, or an age (30d) in seconds as a
    float.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.name = f"{noun.upper()}|AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """Return a number of points or a duration in seconds."""
        if str(value).isdecimal() and len(str(value)) < 19:
            return int(value)
        if _AGE.fullmatch(str(value)) is None:
            message = f"{value!r} is neither a number of {self._noun} (1000) nor a duration (30d)."
            self.fail(message, param, ctx)
        return Age().convert(value, param, ctx)
