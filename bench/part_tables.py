"""The parts as tables: figures with their targets, and the runs that they are made of."""

from __future__ import annotations

from rich.console import Console

from bench import tables
from bench.measurement import spread
from bench.parts import Figure, Part, Result

_COLUMNS = ("", "figure (min..max)", "target", "")
_RUNS = ("run", "median s (min..max)", "rows/s", "used by others")
_DISTURBED = (
    "Others used the machine in most of the rounds of a line marked with *: it is inconclusive."
)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _cells(figure: Figure) -> list[str]:
    found = figure.value
    unit = f" {figure.unit}" if figure.unit else ""
    shown = f"{_number(found.median)}{unit}"
    if found.min != found.max:
        shown += f" ({_number(found.min)}..{_number(found.max)})"
    target = "-"
    if figure.target is not None:
        target = f"{'<=' if figure.at_most else '>='} {figure.target:,g}"
    return [figure.title, shown, target, figure.verdict]


def _runs(part: Part) -> list[list[str]]:
    rows = []
    for name, seconds in part.seconds.items():
        found = spread(seconds)
        others = spread(part.foreign_share.get(name) or [0.0]).median
        rows.append(
            [
                name,
                f"{found.median:.2f} ({found.min:.2f}..{found.max:.2f})",
                f"{part.rows / found.median:,.0f}" if part.rows else "-",
                f"{others:.0%}",
            ]
        )
    return rows


def show(part: Part, console: Console) -> None:
    console.print(part.title, highlight=False, markup=False)
    for text in _tables(part):
        console.print(text, highlight=False, markup=False)


def _tables(part: Part) -> list[str]:
    """The figures, and the runs if there were any that the clock alone says all about."""
    found = [tables.markdown(_COLUMNS, [_cells(each) for each in part.figures])]
    if part.seconds:
        found.append(tables.markdown(_RUNS, _runs(part)))
    return found


def _of(part: Part) -> str:
    """When a part was measured, and of which code: others may be of another day."""
    commit = part.machine.commit.split()[0][:12] if part.machine and part.machine.commit else ""
    return f" ({', '.join(filter(None, [commit, part.finished_at[:16].replace('T', ' ')]))})"


def markdown(result: Result, source: str) -> str:
    texts = []
    machine = next((part.machine for part in result.parts.values() if part.machine), None)
    if machine is not None:
        facts = tables.machine_facts(machine)
        versions = next(part.versions for part in result.parts.values() if part.machine)
        facts.append(", ".join(f"{name} {version}" for name, version in versions.items()))
        texts.append("\n".join(f"- {line}" for line in facts))
    for part in result.parts.values():
        texts += [f"{part.title}{_of(part)}:", *_tables(part)]
    if not result.clean:
        texts.append("\\* " + _DISTURBED)
    newest = max(part.finished_at for part in result.parts.values())
    texts.append(f"Measured until {newest}, part by part; every round: `{source}`.")
    return "\n\n".join(texts)
