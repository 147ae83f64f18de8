"""The result as tables: on a terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import tables
from bench.documents.results import Flatness, Outcome, PolicyOutcome, Result

_STYLES = {"pass": "green", "FAIL": "bold red"}

RATIOS = (
    "",
    "history",
    "page",
    "Fourfold /s",
    "against",
    "its /s",
    "ratio (min..max)",
    "target",
    "",
)
DETAILS = ("CPU us", "its CPU us", "group")
POLICIES = ("", "history", "page", "snapshots", "bytes a revision", "read at a random seq, us")
_DISTURBED = (
    "Others used the machine or its disk in some of these rounds: a line marked with * decides "
    "nothing."
)


def ratio_cells(outcome: Outcome) -> list[str]:
    found = outcome.ratio
    target = "-"
    if outcome.target is not None:
        target = f"{'<=' if outcome.at_most else '>='} {outcome.target:g}"
    return [
        f"{outcome.workload} {outcome.title}",
        outcome.history,
        str(outcome.page_size),
        f"{outcome.rate.median:,.0f}",
        outcome.against,
        f"{outcome.reference_rate.median:,.0f}",
        f"{found.median:.2f} ({found.min:.2f}..{found.max:.2f})",
        target,
        outcome.verdict,
        f"{outcome.cpu_us:.1f}",
        f"{outcome.reference_cpu_us:.1f}",
        f"{outcome.group:.1f}" if outcome.group else "-",
    ]


def flatness_columns(found: list[Flatness]) -> list[str]:
    sizes = sorted({size for each in found for size in each.us})
    return ["F", "history", "page", *(f"{size:,}" for size in sizes), "ratio", "target", ""]


def flatness_cells(each: Flatness, columns: list[str]) -> list[str]:
    sizes = [int(name.replace(",", "")) for name in columns[3:-3]]
    costs = [f"{each.us[size]:.1f}" if size in each.us else "-" for size in sizes]
    target = "-" if each.target is None else f"<= {each.target:g}"
    page = str(each.page_size)
    return [each.title, each.history, page, *costs, f"{each.ratio:.2f}", target, each.verdict]


def policy_cells(each: PolicyOutcome) -> list[str]:
    return [
        f"H {each.title}",
        each.history,
        str(each.page_size),
        each.policy,
        f"{each.bytes_per_revision:,.0f}",
        f"{each.past_us:,.1f}" + ("" if each.clean else " *"),
    ]


def _parts(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of each table that has any."""
    flat = flatness_columns(result.flatness)
    chains = [
        [*name.split()[:2], f"{size:,.0f}"]
        for name, size in sorted(result.bytes_per_revision.items())
        if name.endswith(" past")
    ]
    found = [
        ("Ratios", [*RATIOS, *DETAILS], [ratio_cells(each) for each in result.outcomes]),
        (
            "Microseconds of one operation on an entity with so many revisions",
            flat,
            [flatness_cells(each, flat) for each in result.flatness],
        ),
        (
            "Disk use of the chains of G, log and snapshots and indexes",
            ["history", "page", "bytes a revision"],
            chains,
        ),
        ("When to make snapshots", list(POLICIES), [policy_cells(e) for e in result.policies]),
    ]
    return [part for part in found if part[2]]


def show(result: Result, console: Console) -> None:
    for line in tables.machine_facts(result.machine):
        console.print(line, highlight=False, markup=False)
    for title, columns, rows in _parts(result):
        table = Table(title=title, title_justify="left")
        for name in columns:
            left = name in {"", "history", "against", "snapshots"}
            table.add_column(name, justify="left" if left else "right")
        for row in rows:
            table.add_row(*(Text(cell, _STYLES.get(cell[:4], "")) for cell in row))
        console.print(table)
    if not result.clean:
        console.print(_DISTURBED, style="yellow")


def markdown(result: Result, source: str) -> str:
    parts = ["\n".join(f"- {line}" for line in tables.machine_facts(result.machine))]
    for title, columns, rows in _parts(result):
        parts += [f"{title}:", tables.markdown(columns, rows)]
    if not result.clean:
        parts.append("\\* " + _DISTURBED)
    parts.append(f"Measured {result.finished_at}; every round: `{source}`.")
    return "\n\n".join(parts)
