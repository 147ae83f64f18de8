"""The result as tables: on a terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import tables
from bench.measurement import Spread
from bench.sessions.results import Flatness, Outcome, Result

COLUMNS = ("", "Fourfold", "against", "its", "ratio (min..max)", "target", "", "rounds")
_UNITS = {
    "rate": "/s",
    "bytes": "B",
    "last_ms": "ms",
    "get_ms": "ms",
    "cold_ms": "ms",
    "seconds": "s",
    "cpu": "s",
}
_STYLES = {"pass": "green", "FAIL": "bold red"}
_DISTURBED = "Others used the machine during a line marked with *, which is inconclusive."


def _figure(found: Spread | None, name: str) -> str:
    if found is None:
        return "-"
    digits = 0 if name in {"rate", "bytes"} else 1
    return f"{found.median:,.{digits}f} {_UNITS.get(name, '')}".strip()


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:,.0f}"


def cells(each: Outcome) -> list[str]:
    ratio, target = "-", "-"
    if each.ratio is not None:
        low, high = _ratio(each.ratio.min), _ratio(each.ratio.max)
        ratio = f"{_ratio(each.ratio.median)} ({low}..{high})"
    if each.target is not None:
        target = f"{'<=' if each.at_most else '>='} {_ratio(each.target)}"
    return [
        f"{each.workload} {each.title}",
        _figure(each.ours, each.figure),
        each.against,
        _figure(each.theirs, each.figure),
        ratio,
        target,
        each.verdict,
        str(each.rounds),
    ]


def flatness_columns(found: list[Flatness]) -> list[str]:
    sizes = sorted({size for each in found for size in each.us})
    return ["B", *(f"{size:,}" for size in sizes), "ratio", "target", ""]


def flatness_cells(each: Flatness) -> list[str]:
    costs = [f"{each.us[size]:,.1f}" for size in sorted(each.us)]
    return [each.title, *costs, f"{each.ratio:.2f}", f"<= {each.target:g}", each.verdict]


def _parts(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    parts: list[tuple[str, list[str], list[list[str]]]] = []
    if result.outcomes:
        rows = [cells(each) for each in result.outcomes]
        parts.append(("Ratios", list(COLUMNS), rows))
    if result.flatness:
        rows = [flatness_cells(each) for each in result.flatness]
        title = "Microseconds at so many events in the log"
        parts.append((title, flatness_columns(result.flatness), rows))
    return parts


def show(result: Result, console: Console) -> None:
    for line in tables.machine_facts(result.machine):
        console.print(line)
    for title, columns, rows in _parts(result):
        table = Table(*columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell.split(" ")[0], "")) for cell in row))
        console.print(table)
    if not result.clean:
        console.print(_DISTURBED)


def markdown(result: Result, source: str) -> str:
    facts = [f"- {line}" for line in tables.machine_facts(result.machine)]
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    text = ["\n".join([*facts, f"- {versions}"])]
    for title, columns, rows in _parts(result):
        text += [f"{title}:", tables.markdown(columns, rows)]
    if not result.clean:
        text.append(_DISTURBED)
    text.append(f"Measured {result.finished_at}; every round: `{source}`.")
    return "\n\n".join(text)
