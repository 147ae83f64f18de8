"""Output of commands.

Results go to stdout: a table on a terminal, plain aligned text in a pipe, one JSON document with
`--json`. Progress bars and errors go to stderr, bars only on a terminal. Colour is off when
`NO_COLOR` or `FOURFOLD_NO_COLOR` is set. Control characters in names are escaped.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "bright_black"}


class Output:
    """Prints the results, progress and errors of one command."""

    def __init__(
        self, *, as_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr

    def document(self, document: Mapping[str, object]) -> None:
        """Print the JSON document of a command that ran with `--json`."""
        self._stdout.write(json.dumps(document, indent=2) + "\n")

    def line(self, text: str = "") -> None:
        self._stdout.write(printable(text) + "\n")

    def flush(self) -> None:
        """Flush stdout before a long wait."""
        self._stdout.flush()

    def text(self, text: str) -> None:
        """Print text without a newline or escaping."""
        self._stdout.write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [[printable(_cell(value)) for value in row] for row in rows]
        if is_terminal(self._stdout):
            _draw(_console(self._stdout), columns, cells)
        else:
            for text in aligned([[column.upper() for column in columns], *cells]):
                self._stdout.write(text + "\n")

    def error(self, error: Mapping[str, object]) -> None:
        """Print an error on stderr: `error[kind]: message` and its hint, or as JSON."""
        if self.as_json:
            self._stderr.write(json.dumps({"error": dict(error)}) + "\n")
            return
        text = f"error[{error['kind']}]: {printable(str(error['message']))}\n"
        if error.get("hint"):
            text += f"hint: {printable(str(error['hint']))}\n"
        if error.get("retry_after") is not None:
            text += f"retry after: {error['retry_after']} s\n"
        if error.get("traceback"):
            text = f"{error['traceback']}{text}"
        self._stderr.write(text)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show a progress bar on stderr during the block; yields `advance(label, done, total)`.

        Without a terminal, or with `--json`, the calls do nothing.
        """
        if self.as_json or not is_terminal(self._stderr):
            yield lambda _label, _done, _total: None
            return
        from rich.progress import (  # noqa: PLC0415 - drawing is only paid for on a terminal
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=_console(self._stderr),
            transient=True,
        ) as bar:
            task = bar.add_task(title, total=None)

            def advance(label: str, done: int, total: int) -> None:
                text = f"{title} {printable(label)}" if label else title
                bar.update(task, description=text, completed=done, total=total or None)

            yield advance


def is_terminal(stream: TextIO) -> bool:
    """Return True if tables and bars can be drawn: a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}


def printable(text: str) -> str:
    """Escape control characters, so that a name cannot move the cursor."""
    return "".join(
        char
        if char.isprintable() or char == "\n"
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def size(count: int) -> str:
    """Format a number of bytes: 1.5 MiB."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1 database, 2 databases."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns; a cell with several lines becomes one."""
    flat = [[" ".join(cell.split("\n")) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in flat) for index in range(len(flat[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in flat
    ]


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _console(stream: TextIO) -> Console:
    from rich.console import Console  # noqa: PLC0415 - drawing is only paid for on a terminal

    # An empty NO_COLOR counts as unset, by the convention of no-color.org.
    plain = bool(os.environ.get("NO_COLOR") or os.environ.get("FOURFOLD_NO_COLOR"))
    return Console(file=stream, no_color=plain, highlight=False, emoji=False, markup=False)


def _draw(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415 - drawing is only paid for on a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        # The first column is what people copy, so it never wraps.
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    console.print(table)
