"""The entry point: runs one command and turns every outcome into an exit code and a message.

0 is success. A Fourfold error gives the exit code of its class, a wrong call 2 like any bad input,
Ctrl-C 130, a reader that went away 141, and a bug in Fourfold 70, with a traceback only on request.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

import click

from fourfold.cli.commands import app
from fourfold.cli.output import Output
from fourfold.errors import DiskFull, FourfoldError, InvalidInput, ReadOnly, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXIT_INTERNAL: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

_INTERRUPTED: Final[Mapping[str, object]] = {
    "kind": "interrupted",
    "message": "stopped by Ctrl-C",
    "hint": "Nothing is half written: each file is as it was, or complete. Run it again to finish.",
    "retryable": True,
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave the process."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code and never raises."""
    if "_FOURFOLD_COMPLETE" in os.environ:
        app.main(arguments, prog_name="fourfold")
    # A name that this terminal's encoding lacks must not stop a command that is half-way through.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    output = Output(as_json="--json" in options)
    try:
        code = _invoke(arguments)
        # A failing write must be noticed here, not by the interpreter on its way out.
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        code, report = EXIT_INTERRUPTED, _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence turns all into a message
        code, report = _describe(error)
        if "--traceback" in options:
            lines = "".join(traceback.format_exception(error))
            report = {**report, "traceback": lines}
    else:
        return code
    _settle_stdout()
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
    """The exit code and the report of an error that ended a command."""
    if isinstance(error, click.ClickException):
        error = _wrong_call(error)
    elif isinstance(error, OSError) and not isinstance(error, FourfoldError):
        error = _machine_failed(error)
    if isinstance(error, FourfoldError):
        return error.exit_code, error.as_dict()
    return EXIT_INTERNAL, {
        "kind": "internal",
        "message": f"unexpected {type(error).__name__}: {error}",
        "hint": "This is a bug in Fourfold: run again with --traceback and report what it shows.",
        "retryable": False,
    }


def _wrong_call(error: click.ClickException) -> InvalidInput:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "fourfold"
    return InvalidInput(
        error.format_message(), hint=f"Run `{path} --help` to see how it is called."
    )


def _machine_failed(error: OSError) -> FourfoldError:
    """An operating system error that no layer below gave a name to."""
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        return DiskFull(message)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(message)
    return StorageError(message)


def _settle_stdout() -> None:
    """Print what a failed command has printed so far, if stdout takes it."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Let what is still buffered go nowhere: the interpreter would fail on it on its way out."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
