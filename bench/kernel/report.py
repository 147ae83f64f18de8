"""The result as tables: on a terminal, and as Markdown between two marks of docs/performance.md."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import tables
from bench.kernel.results import Outcome, Result, Side

_STYLES = {"pass": "green", "FAIL": "bold red"}


def show(result: Result, console: Console) -> None:
    for lines in facts(result):
        console.print(lines, highlight=False, markup=False)
    console.print(_ratios(result))
    console.print(_times(result))
    if not result.clean:
        console.print(
            "Others used the machine or its disk: lines marked with * come from disturbed rounds "
            "and decide nothing. Run again when it is quiet.",
            style="yellow",
        )


def facts(result: Result) -> list[str]:
    ceiling = result.ceiling
    lines = tables.machine_facts(result.machine)
    if ceiling:
        lines.append(
            f"C's SQLite: {ceiling['sqlite']} ({ceiling['origin']}), {ceiling['compiler']}"
        )
    else:
        lines.append("The C program could not be built here: absolute figures only, no ratios")
    return lines


def _ratios(result: Result) -> Table:
    table = Table(title="Throughput against C", title_justify="left")
    for name in RATIO_COLUMNS:
        left = name in {"", "form of C"}
        table.add_column(name, justify="left" if left else "right")
    for outcome in result.outcomes:
        table.add_row(
            *ratio_cells(outcome), Text(outcome.verdict, _STYLES.get(outcome.verdict[:4], ""))
        )
    return table


def _times(result: Result) -> Table:
    table = Table(title="One request, one group", title_justify="left")
    for name in TIME_COLUMNS:
        table.add_column(name, justify="right" if name else "left")
    for outcome in result.outcomes:
        table.add_row(*time_cells(outcome))
    return table


RATIO_COLUMNS = ("", "Fourfold /s", "C /s", "form of C", "ratio (min..max)", "target", "")
TIME_COLUMNS = ("", "p50 / p99 us", "C: p50 / p99 us", "group", "CPU us", "C: CPU us", "rounds")


def ratio_cells(outcome: Outcome) -> list[str]:
    ratio = "-"
    if outcome.ratio is not None:
        found = outcome.ratio
        ratio = f"{found.median:.2f} ({found.min:.2f}..{found.max:.2f})"
    limit = outcome.limits[0] if outcome.limits else None
    return [
        outcome.title,
        _rate(outcome.fourfold),
        _rate(limit) if limit else "-",
        form_of(limit) if limit else "-",
        ratio,
        "-" if outcome.target is None else f"{outcome.target:.2f}",
    ]


def time_cells(outcome: Outcome) -> list[str]:
    limit = outcome.limits[0] if outcome.limits else None
    return [
        outcome.title,
        _latency(outcome.fourfold),
        _latency(limit) if limit else "-",
        f"{outcome.fourfold.group:.1f}",
        f"{outcome.fourfold.cpu_us:.1f}",
        f"{limit.cpu_us:.1f}" if limit else "-",
        f"{outcome.rounds}"
        + (f" (+{outcome.disturbed_rounds})" if outcome.disturbed_rounds else ""),
    ]


def form_of(side: Side) -> str:
    if side.form in {"requests", "claims"}:
        return f"groups of {side.group:.0f}" if side.group > 1.5 else "one by one"
    if not side.form.startswith("values"):
        return {"carray": "carray", "loop": "row by row"}[side.form]
    _, rows, *fail = side.form.split()
    return f"{rows} rows a statement" + (", OR FAIL" if fail else "")


def _rate(side: Side) -> str:
    return f"{side.rate.median:,.0f}"


def _latency(side: Side) -> str:
    return f"{side.p50_us:,.0f} / {side.p99_us:,.0f}"


def markdown(result: Result, source: str) -> str:
    """Both tables and the facts behind them."""
    parts = ["\n".join(f"- {line}" for line in facts(result))]
    parts.append(
        tables.markdown(RATIO_COLUMNS, [[*ratio_cells(o), o.verdict] for o in result.outcomes])
    )
    parts.append(
        tables.markdown(TIME_COLUMNS, [time_cells(outcome) for outcome in result.outcomes])
    )
    parts.append("Every form of C that was tried, rows a second:")
    parts.append(
        tables.markdown(
            ("", "form of C", "/s (min..max)"),
            [[o.title, form_of(s), _range(s)] for o in result.outcomes if o.bulk for s in o.limits],
        )
    )
    if not result.clean:
        parts.append(
            "\\* Others used the machine or its disk in some of these rounds: such a line decides "
            "nothing."
        )
    parts.append(f"Measured {result.finished_at}; every round: `{source}`.")
    return "\n\n".join(parts)


def _range(side: Side) -> str:
    return f"{side.rate.median:,.0f} ({side.rate.min:,.0f}..{side.rate.max:,.0f})"
