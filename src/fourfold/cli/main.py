"""Entry point: run one command, and turn every outcome into an exit code and a message.

0 is success. A Fourfold error gives the exit code of its class, wrong usage 2 like any bad input,
Ctrl-C 130, a closed pipe 141, and a bug in Fourfold 70, with a traceback only on request.

To add a command, write `cli/<name>.py` with a click command (or group) called `command`, and add
its name to `SECTIONS`. The module of a command is imported only when it runs, or for help.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from fourfold._version import __version__
from fourfold.cli.output import Output
from fourfold.errors import DiskFull, FourfoldError, InvalidInput, ReadOnly, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BACKGROUND_COMMANDS: Final = ("backup", "verify")
"""Commands that read a whole store, at a low priority: a server may be writing it."""

Sections = Sequence[tuple[str, Sequence[str]]]
"""The title of each section, and the names of the commands in it."""


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section; shown also without a command."""

    def __init__(self, *args: Any, sections: Sections, **attributes: Any) -> None:
        attributes |= {
            "callback": _help_without_command,
            "invoke_without_command": True,
            "subcommand_metavar": "COMMAND [ARGS]...",
        }
        super().__init__(*args, **attributes)
        self.sections = sections

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; `ls` is an alias of `list`."""
        command = super().get_command(ctx, cmd_name)
        return super().get_command(ctx, "list") if command is None and cmd_name == "ls" else command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a call; an unknown name is answered with similar ones."""
        name = args[0]
        is_known = name.startswith("-") or self.get_command(ctx, name) is not None
        if is_known or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        import difflib  # noqa: PLC0415 - for this message only

        similar = difflib.get_close_matches(name, self.list_commands(ctx), n=3)
        suggestion = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
        raise click.UsageError(f"No such command {name!r}.{suggestion}", ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their sections."""
        del ctx
        return [name for _, names in self.sections for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for title, names in self.sections:
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, found.get_short_help_str(80)) for name, found in commands if found]
                )


def _help_without_command() -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


SECTIONS: Final[Sections] = (
    ("Start here", ("demo", "show", "open")),
    ("Work with documents", ("space", "memory")),
    ("Work with graphs", ("app",)),
    ("Work with streams", ("stream", "serve", "key", "audit")),
    ("Work with sessions", ("session", "mcp")),
    ("Process all history", ("sql", "job", "pipeline")),
    (
        "Keep the data safe",
        ("backup", "restore", "publish", "bootstrap", "drill", "follow", "verify"),
    ),
    ("Inspect the installation", ("doctor", "config", "version")),
)

_EPILOG: Final = """\b
Examples:
  fourfold demo                      a shop in all four models, with its explorer
  fourfold show ROOT                 what a store contains
  fourfold open ROOT                 the same in the browser, with all history
  fourfold doctor                    check this machine
  fourfold space --help              documents with branches and time travel
  fourfold config ROOT               all settings with their values and sources
  fourfold backup ROOT DEST          a verified copy, while the store is in use
  fourfold verify DEST --json        verify the copy, report as JSON

ROOT is an argument, --root or FOURFOLD_ROOT. An argument or --root counts
before the variable. Every command takes --json. Errors go to stderr with their kind and a hint,
and the exit code follows the kind.
"""


class _Commands(SectionedGroup):
    """A group that loads its commands from their modules."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"fourfold.cli.{cmd_name}").command
        return command


@click.command(
    "fourfold",
    cls=_Commands,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def app() -> None:
    """Application state as append-only logs in SQLite files that you own.

    A store is one folder (ROOT). It contains documents, streams, graphs and sessions, each as the
    fold of a log, so that every past state stays readable.
    """


EXIT_INTERNAL: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

_INTERRUPTED: Final[Mapping[str, object]] = {
    "kind": "interrupted",
    "message": "stopped by Ctrl-C",
    "hint": "No file is half written: each is unchanged or complete. Run the command "
    "again to finish.",
    "retryable": True,
}
_FOLLOWED: Final = {**_INTERRUPTED, "hint": ""}
"""The report of a command with `--follow`, which has no other end."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave the process."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in BACKGROUND_COMMANDS:
        from fourfold.kernel.pauses import lower_thread_priority  # noqa: PLC0415 - only here

        # Not in `run`: the thread that calls it could not raise its priority again.
        lower_thread_priority()
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; never raise."""
    if "_FOURFOLD_COMPLETE" in os.environ:
        app.main(arguments, prog_name="fourfold")
    # A name that the terminal's encoding lacks must not stop a running command.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    output = Output("json" if {"--json", "--ndjson"} & set(options) else "text")
    try:
        code = _invoke(arguments)
        # A failing write must be noticed here, not by the interpreter at exit.
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        code = EXIT_INTERRUPTED
        report = _FOLLOWED if "--follow" in options else _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence turns all into a message
        code, report = _describe(error)
        if "--traceback" in options:
            lines = "".join(traceback.format_exception(error))
            report = {**report, "traceback": lines}
    else:
        return code
    _flush_stdout()
    output.error(report)
    return code


def _invoke(arguments: list[str]) -> int:
    try:
        with app.make_context("fourfold", arguments) as context:
            app.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return 0


def _describe(error: Exception) -> tuple[int, Mapping[str, object]]:
    """Return the exit code and the report of an error that ended a command."""
    if isinstance(error, click.ClickException):
        error = _wrong_call(error)
    elif isinstance(error, OSError) and not isinstance(error, FourfoldError):
        error = _machine_failed(error)
    if isinstance(error, FourfoldError):
        return error.exit_code, error.as_dict()
    return EXIT_INTERNAL, {
        "kind": "internal",
        "message": f"unexpected {type(error).__name__}: {error}",
        "hint": "This is a bug in Fourfold: run again with --traceback and report the output.",
        "retryable": False,
    }


def _wrong_call(error: click.ClickException) -> InvalidInput:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "fourfold"
    return InvalidInput(
        error.format_message(), hint=f"Run `{path} --help` to see how it is called."
    )


def _machine_failed(error: OSError) -> FourfoldError:
    """Return the report of an operating system error that no layer below has handled."""
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        return DiskFull(message)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(message)
    return StorageError(message)


def _flush_stdout() -> None:
    """Flush what a failed command has printed, if stdout still accepts it."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Discard buffered output; the interpreter would fail on it at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
