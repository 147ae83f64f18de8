"""The shell of `fourfold sql`: queries that end with `;`, with completion and history.

Line editing, completion with Tab and the history of earlier shells need Python's readline. Input
that is not a terminal is read as a script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fourfold.cli.output import Output
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.sql_result import Result

HISTORY_LINES_MAX: Final = 10_000
_KEYWORDS: Final = """
    select from where group by order limit join using on as and or not in is null count distinct
    with union all having case when then else end like between exists json_extract
""".split()  # noqa: SIM905 - a list of words reads better
_HELP: Final = "Queries end with ;  .tables lists the tables, .exit or Ctrl-D ends the shell."


def run_shell(out: Output, run: Callable[[str], Result], show: Callable[[Result], None]) -> None:
    """Read queries from the terminal or from stdin, and show their results, until the end."""
    interactive = sys.stdin.isatty()
    if interactive:
        _prepare_terminal()
        out.line(_HELP)
    for query in _iter_queries(interactive=interactive):
        if query == ".exit":
            return
        if query == ".tables":
            for name in table_names():
                out.line(name)
            continue
        try:
            if query.startswith("."):
                raise InvalidInput(f"unknown command {query!r:.40}", hint=_HELP)
            show(run(query))
        except FourfoldError as error:
            if not interactive:
                raise
            out.line(f"error[{error.kind}]: {error.message}", "red")
            out.line(f"hint: {error.hint}")
        except KeyboardInterrupt:
            out.line("interrupted")
        out.flush()


def _iter_queries(*, interactive: bool) -> Iterator[str]:
    """Yield statements: lines up to a `;` that ends a statement, or a line with a dot first."""
    from fourfold.kernel.query_connection import is_blank, is_complete  # noqa: PLC0415 - large

    lines: list[str] = []
    while True:
        try:
            line = input("...> " if lines else "sql> ") if interactive else _next_line()
        except EOFError:
            break
        except KeyboardInterrupt:
            lines = []
            continue
        text = line.strip()
        if not lines and text.startswith("."):
            yield text
        elif text or lines:
            lines.append(line)
            query = "\n".join(lines).strip()
            if is_blank(query):
                lines = []
            elif is_complete(query):
                yield query
                lines = []
    if lines:
        yield "\n".join(lines)


def _next_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def table_names() -> list[str]:
    """Return the names of all tables, with their prefix."""
    from fourfold.query.engine import all_tables  # noqa: PLC0415 - it imports every model

    return [
        f"{model}_{table.name}"
        for model, registry in all_tables().items()
        for table in registry.public()
    ]


def complete(text: str) -> list[str]:
    """Return the tables, columns and keywords that begin with `text`."""
    from fourfold.query.engine import all_tables  # noqa: PLC0415 - it imports every model

    columns = {
        column.name
        for registry in all_tables().values()
        for table in registry.public()
        for column in table.columns
    }
    words = [*table_names(), *sorted(columns), *_KEYWORDS]
    return list(dict.fromkeys(word for word in words if word.startswith(text.lower())))


def history_path() -> Path:
    """Return the file of the history, in the state folder of the user."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "fourfold" / "sql_history"


def _prepare_terminal() -> None:
    try:
        import atexit  # noqa: PLC0415 - only for a terminal
        import readline  # noqa: PLC0415 - absent on some platforms
    except ImportError:
        return
    matches: list[str] = []

    def completer(text: str, state: int) -> str | None:
        if state == 0:
            matches[:] = complete(text)
        return matches[state] if state < len(matches) else None

    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n,()=<>'\"")
    readline.parse_and_bind("tab: complete")
    path = history_path()
    readline.set_history_length(HISTORY_LINES_MAX)
    if path.exists():
        readline.read_history_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atexit.register(readline.write_history_file, path)
