"""The result as tables: on a terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import tables
from bench.measurement import Spread
from bench.streams.results import Cell, Outcome, Result

_STYLES = {"pass": "green", "FAIL": "bold red"}
_DISTURBED = "Others used the machine or its disk in every round of this line: it is inconclusive."
_UNITS = {
    "A": ("appends/s", "p50 / p99 ms"),
    "B": ("messages/s", "p50 / p99 ms"),
    "C": ("MB/s", "peak MiB"),
    "D": ("p50 ms", "p99 ms"),
    "E": ("MiB", ""),
}
TARGETS = ("", "Fourfold", "against", "its", "ratio (or figure)", "target", "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _figure_cells(result: Result, cell: Cell) -> list[str]:
    found = []
    for server in result.servers:
        records, clean = result.counted(cell, server)
        mark = "" if clean or not records else " *"
        found.append(_shown(result, cell, server) + mark)
    return found


def _shown(result: Result, cell: Cell, server: str) -> str:
    def one(name: str) -> Spread | None:
        return result.figure(cell, server, name)

    rate, p50, p99 = one("per_s"), one("p50_ms"), one("p99_ms")
    if rate is not None and p50 is not None and p99 is not None:
        return f"{_number(rate.median)} ({p50.median:.2f} / {p99.median:.2f})"
    peak, memory = one("peak_mib"), one("rss_mib")
    if rate is not None and peak is not None:
        return f"{_number(rate.median)} ({peak.median:.0f})"
    if p50 is not None and p99 is not None:
        return f"{p50.median:.2f} / {p99.median:.2f}"
    return "-" if memory is None else f"{memory.median:.0f}"


def _outcome_cells(outcome: Outcome) -> list[str]:
    target = outcome.target
    bound = f"{'<=' if target.at_most else '>='} {target.ratio:g}"
    ratio = f"{outcome.ratio:.2f}"
    theirs = "-" if outcome.theirs is None else _number(outcome.theirs.median)
    name = f"{outcome.cell.title}, {target.figure}"
    ours = _number(outcome.ours.median)
    return [name, ours, target.against or "-", theirs, ratio, bound, outcome.verdict]


def _parts(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    found = []
    for workload, (unit, detail) in _UNITS.items():
        cells = [cell for cell in result.cells if cell.workload == workload]
        if cells:
            head = f"{workload}: {unit}" + (f" ({detail})" if detail else "")
            rows = [[cell.title, *_figure_cells(result, cell)] for cell in cells]
            found.append((head, ["", *result.servers], rows))
    outcomes = [_outcome_cells(outcome) for outcome in result.outcomes()]
    if outcomes:
        found.append(("Targets", list(TARGETS), outcomes))
    return found


def _clean(result: Result) -> bool:
    return all(
        result.counted(cell, server)[1]
        for cell in result.cells
        for server in result.servers
        if result.counted(cell, server)[0]
    )


def show(result: Result, console: Console) -> None:
    for line in tables.machine_facts(result.machine):
        console.print(line, highlight=False, markup=False)
    for title, columns, rows in _parts(result):
        table = Table(title=title, title_justify="left")
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if number else "left")
        for row in rows:
            table.add_row(*(Text(cell, _STYLES.get(cell[:4], "")) for cell in row))
        console.print(table)
    if not _clean(result):
        console.print(f"* {_DISTURBED}", style="yellow")


def markdown(result: Result, source: str) -> str:
    facts = [*tables.machine_facts(result.machine)]
    facts += [f"{name} {version}" for name, version in sorted(result.versions.items())]
    parts = ["\n".join(f"- {line}" for line in facts)]
    for title, columns, rows in _parts(result):
        parts += [f"{title}:", tables.markdown(columns, rows)]
    if not _clean(result):
        parts.append("\\* " + _DISTURBED)
    parts.append(f"Measured {result.finished_at}; every round: `{source}`.")
    return "\n\n".join(parts)
