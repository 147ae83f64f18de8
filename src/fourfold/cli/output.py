"""Output of commands.

Results go to stdout: a table on a terminal, plain aligned text in a pipe, one JSON document with
`--json`. A command that prints rows also takes `--csv` and `--ndjson`, which print the rows of the
JSON document. Progress bars and errors go to stderr, bars only on a terminal. Colour is off when
`NO_COLOR` or `FOURFOLD_NO_COLOR` is set. Control characters in names are escaped.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Format = Literal["text", "json", "csv", "ndjson"]
Record = Mapping[str, Any]
Column = str | Callable[[Any], object]
"""Source of a table column: the name of a field of the record, or a function."""

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "bright_black"}
_COLUMN_COLOURS: Final = {"seq": "yellow", "event": "yellow", "time": "bright_black"}
_CHANGE_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}


class Output:
    """Prints the results, progress and errors of one command."""

    def __init__(
        self,
        output_format: Format = "text",
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.format = output_format
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr

    @property
    def as_json(self) -> bool:
        """True if the command prints one JSON document."""
        return self.format == "json"

    @property
    def as_rows(self) -> bool:
        """True if the command prints only rows, one by one: `--csv` or `--ndjson`."""
        return self.format in {"csv", "ndjson"}

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if stdout is not a terminal."""
        return shutil.get_terminal_size().columns if is_terminal(self._stdout) else None

    def document(self, document: Mapping[str, object]) -> None:
        """Print the JSON document of a command that ran with `--json`."""
        self._stdout.write(json.dumps(document, indent=2) + "\n")

    def rows(
        self,
        document: Mapping[str, Any],
        name: str,
        columns: Mapping[str, Column],
        *,
        fields: Sequence[str],
        empty: str = "",
    ) -> None:
        """Print the list `document[name]`: as a table, or in the format that was requested.

        The list contains records with the keys `fields`. `columns` makes the table: a heading, and
        the field or the function of a record that fills it. Text output of an empty list is the
        line `empty`.
        """
        records: Sequence[Record] = document[name]
        if self.as_json:
            self.document(document)
        elif self.as_rows:
            write = self.row_writer(fields)
            for record in records:
                write(record)
        elif records or not empty:
            self.table(
                list(columns),
                [[_column(record, column) for column in columns.values()] for record in records],
            )
        else:
            self.line(empty)

    def row_writer(self, fields: Sequence[str]) -> Callable[[Record], None]:
        """Return a function that prints one record as a line of `--csv` or `--ndjson`.

        A CSV has a header, also without rows. Values that are not text, numbers or missing are
        written as JSON.
        """
        if self.format == "ndjson":
            return lambda record: self.text(json.dumps(record) + "\n")
        import csv  # noqa: PLC0415 - few commands print rows

        writer = csv.writer(self._stdout, lineterminator="\n")
        writer.writerow(fields)
        return lambda record: writer.writerow([_csv_cell(record.get(name)) for name in fields])

    def line(self, text: str = "", colour: str = "") -> None:
        """Print a line of text, on a terminal in a colour."""
        if not colour or not is_terminal(self._stdout):
            self._stdout.write(printable(text) + "\n")
            return
        from rich.text import Text  # noqa: PLC0415 - drawing is only paid for on a terminal

        _console(self._stdout).print(Text(printable(text), style=colour), soft_wrap=True)

    def change(self, text: str) -> None:
        """Print a line of a difference: `+` added, `-` removed, `~` changed."""
        self.line(text, _CHANGE_COLOURS.get(text[:1], ""))

    def flush(self) -> None:
        """Flush stdout before a long wait."""
        self._stdout.flush()

    def text(self, text: str) -> None:
        """Print text without a newline or escaping."""
        self._stdout.write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows as a table, or tab-separated if the output is no terminal."""
        cells = [[printable(_cell(value)) for value in row] for row in rows]
        if is_terminal(self._stdout):
            _draw(_console(self._stdout), columns, cells)
        else:
            for text in aligned([[column.upper() for column in columns], *cells]):
                self._stdout.write(text + "\n")

    def warning(self, text: str) -> None:
        """Print a warning on stderr, beside rows that a program reads."""
        self._stderr.write(f"warning: {printable(text)}\n")

    def error(self, error: Mapping[str, object]) -> None:
        """Print an error on stderr: `error[kind]: message` and its hint, or as JSON."""
        if self.format in {"json", "ndjson"}:
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

        Without a terminal, or with `--json`, `--csv` or `--ndjson`, the calls do nothing. With
        `--json` and FOURFOLD_PROGRESS=json they print lines of JSON on stderr, for a program that
        runs the command.
        """
        if self.as_json and os.environ.get("FOURFOLD_PROGRESS") == "json":
            yield self._print_progress
            return
        if self.format != "text" or not is_terminal(self._stderr):
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

    def _print_progress(self, label: str, done: int, total: int) -> None:
        progress = {"label": label, "done": done, "total": total}
        self._stderr.write(json.dumps({"progress": progress}) + "\n")
        self._stderr.flush()


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


def _column(record: Record, column: Column) -> object:
    return record[column] if isinstance(column, str) else column(record)


def _csv_cell(value: object) -> object:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return json.dumps(value, ensure_ascii=False)


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
        colour = _COLUMN_COLOURS.get(column)
        table.add_column(column, no_wrap=index == 0, overflow="fold", style=colour)
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    console.print(table)
