"""The result as tables: on a terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import tables
from bench.graphs.results import Flatness, Outcome, Result

_STYLES = {"pass": "green", "FAIL": "bold red"}
RATIOS = (
    "",
    "Fourfold /s",
    "against",
    "its /s",
    "ratio (min..max)",
    "target",
    "",
    "CPU us",
    "its CPU us",
)
_DISTURBED = (
    "Others used the machine or its disk in some of these rounds: a line marked with * decides "
    "nothing."
)


def ratio_cells(outcome: Outcome) -> list[str]:
    found = outcome.ratio
    return [
        f"{outcome.workload} {outcome.title}",
        f"{outcome.rate.median:,.0f}",
        outcome.against,
        f"{outcome.reference_rate.median:,.0f}",
        f"{found.median:.2f} ({found.min:.2f}..{found.max:.2f})",
        "-" if outcome.target is None else f">= {outcome.target:g}",
        outcome.verdict,
        f"{outcome.cpu_us:.1f}",
        f"{outcome.reference_cpu_us:.1f}",
    ]


def flatness_columns(found: list[Flatness]) -> list[str]:
    sizes = sorted({size for each in found for size in each.us})
    return ["D", *(f"{size:,}" for size in sizes), "ratio", "target", ""]


def flatness_cells(each: Flatness) -> list[str]:
    target = "-" if each.target is None else f"<= {each.target:g}"
    costs = [f"{each.us[size]:,.1f}" for size in sorted(each.us)]
    return [each.title, *costs, f"{each.ratio:.2f}", target, each.verdict]


def _parts(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of each table that has any."""
    found = [
        (
            "Ratios; rows a second, and envelopes in B and the middle of E",
            list(RATIOS),
            [ratio_cells(each) for each in result.outcomes],
        ),
        (
            "Microseconds of one operation on a database with so many rows",
            flatness_columns(result.flatness),
            [flatness_cells(each) for each in result.flatness],
        ),
    ]
    return [part for part in found if part[2]]


def show(result: Result, console: Console) -> None:
    for line in tables.machine_facts(result.machine):
        console.print(line, highlight=False, markup=False)
    for title, columns, rows in _parts(result):
        table = Table(title=title, title_justify="left")
        for name in columns:
            table.add_column(name, justify="left" if name in {"", "D", "against"} else "right")
        for row in rows:
            table.add_row(*(Text(cell, _STYLES.get(cell[:4], "")) for cell in row))
        console.print(table)
    for name, seconds in sorted(result.prepared_s.items()):
        console.print(f"{name}: {result.file_mib[name]:,.0f} MiB, made in {seconds:.1f} s")
    if not result.clean:
        console.print(_DISTURBED, style="yellow")


def markdown(result: Result, source: str, *, machine: bool = True) -> str:
    parts = []
    if machine:
        parts.append("\n".join(f"- {line}" for line in tables.machine_facts(result.machine)))
    for title, columns, rows in _parts(result):
        parts += [f"{title}:", tables.markdown(columns, rows)]
    sizes = {n: s for n, s in result.prepared_s.items() if n.startswith("size-")}
    if sizes:
        largest = max(sizes, key=lambda name: int(name.partition("-")[2]))
        held = int(largest.partition("-")[2])
        parts.append(
            f"The database of {held:,} rows has {result.file_mib[largest]:,.0f} MiB; "
            f"it was built in {sizes[largest]:.0f} s."
        )
    if not result.clean:
        parts.append("\\* " + _DISTURBED)
    parts.append(f"Measured {result.finished_at}; every round: `{source}`.")
    return "\n\n".join(parts)
