"""What the parts of a benchmark leave: figures, each with its target, and every round.

Parts are run one by one, for each takes minutes. The file of a day holds the newest run of each: it
begins with what the file before it holds, so that a run of some parts replaces only those.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.machine import Machine
from bench.measurement import FOREIGN_SHARE_MAX, Spread, spread, verdict


class Figure(msgspec.Struct, frozen=True):
    title: str
    value: Spread
    unit: str = ""
    target: float | None = None
    at_most: bool = False
    clean: bool = True

    @property
    def verdict(self) -> str:
        return verdict(self.value.median, self.target, at_most=self.at_most, clean=self.clean)


class Part(msgspec.Struct, frozen=True):
    """One run of one part."""

    title: str
    rows: int
    figures: list[Figure]
    seconds: dict[str, list[float]] = {}
    foreign_share: dict[str, list[float]] = {}
    facts: dict[str, Any] = {}
    finished_at: str = msgspec.field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds")
    )
    machine: Machine | None = None
    versions: dict[str, str] = {}


class Result(msgspec.Struct, frozen=True):
    parts: dict[str, Part] = {}

    @property
    def clean(self) -> bool:
        return all(figure.clean for part in self.parts.values() for figure in part.figures)


def undisturbed(shares: list[float]) -> bool:
    """Whether others left the machine alone in most rounds."""
    return sum(share <= FOREIGN_SHARE_MAX for share in shares) * 2 > len(shares)


def ratio(
    title: str,
    seconds: dict[str, list[float]],
    shares: dict[str, list[float]],
    ours: str,
    theirs: str,
    target: float | None,
) -> Figure:
    """How fast `ours` is in units of `theirs`, round by round."""
    found = [other / own for own, other in zip(seconds[ours], seconds[theirs], strict=True)]
    clean = undisturbed(shares[ours]) and undisturbed(shares[theirs])
    return Figure(title, spread(found), "", target, clean=clean)


def one(title: str, value: float, unit: str, target: float | None = None, **more: Any) -> Figure:
    return Figure(title, Spread(value, value, value), unit, target, **more)


def load(path: Path) -> Result:
    if not path.exists():
        return Result()
    return msgspec.json.decode(path.read_bytes(), type=Result)


def file_of_day(folder: Path, name: str, day: str) -> Path:
    """The file of a day. Each part in it says when it was measured, and of what."""
    path = folder / f"{name}-{day}.json"
    before = [each for each in folder.glob(f"{name}-[0-9]*.json") if each.name < path.name]
    if before and not path.exists():
        path.write_bytes(max(before).read_bytes())
    return path


def save(part: Part, name: str, path: Path) -> Result:
    """Put the part into the file, in the place of an earlier run of it."""
    parts = {**load(path).parts, name: part}
    result = Result({key: parts[key] for key in sorted(parts)})
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return result
