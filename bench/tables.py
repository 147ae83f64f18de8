"""Tables of figures in Markdown, and their place between two marks of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.machine import Machine


class MarksMissing(Exception):
    """The document has no place for the figures."""


def machine_facts(machine: Machine) -> list[str]:
    """The machine and what ran on it, one fact a line."""
    changed = " with changes" if machine.commit.endswith("changes") else ""
    version = f"{machine.fourfold} {machine.commit[:12]}{changed}".strip()
    return [
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB",
        f"{machine.system}, {machine.kernel}, {machine.filesystem}",
        f"Frequency governor: {machine.governor}",
        f"4 KiB append and fdatasync: {machine.sync_p50_us:.0f} us (p99 {machine.sync_p99_us:.0f})",
        f"Fourfold {version}, {machine.python}, uvloop {machine.uvloop}",
        f"Fourfold's SQLite: {machine.apsw_sqlite} (apsw {machine.apsw})",
    ]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its first column is text, the others are figures."""
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|---|" + "---:|" * (len(columns) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def put_between_marks(document: Path, name: str, figures: str) -> None:
    """Put `figures` where `document` marks the place of the benchmark `name`."""
    begin, end = f"<!-- {name} figures: begin -->", f"<!-- {name} figures: end -->"
    text = document.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise MarksMissing(f"{document} lacks the lines {begin} and {end}")
    document.write_text(f"{before}{begin}\n\n{figures}\n\n{end}{after}", encoding="utf-8")
