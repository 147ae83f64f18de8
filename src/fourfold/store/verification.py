"""Verification of a whole store: every database and every content-addressed file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fourfold.errors import CorruptData, NotFound
from fourfold.kernel import inspection
from fourfold.models.graphs.verify import is_dangling
from fourfold.store import layout
from fourfold.store.kinds import problems_of

Progress = Callable[[str, int, int], None]
"""Called with the current subject, the number of steps done, and the number of all steps."""

_BLOB = re.compile(r"([0-9a-f]{64})\.blob")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One checked database or file, and its problems."""

    path: str
    what: str
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of verifying a store."""

    root: Path
    checked: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checked)

    @property
    def problems(self) -> list[str]:
        return [problem for check in self.checked for problem in check.problems]

    @property
    def damage(self) -> list[str]:
        """Problems that a restore can fix: all except dangling references."""
        return [problem for problem in self.problems if not is_dangling(problem)]

    def with_(self, more: CheckResult) -> VerifyReport:
        return VerifyReport(self.root, (*self.checked, more))

    def raise_if_bad(self) -> None:
        if damage := self.damage:
            raise CorruptData(f"{self.root}: {len(damage)} problems; first: {damage[0]}")


def verify(root: Path, progress: Progress | None = None) -> VerifyReport:
    """Verify the store in `root`, in use or not. Reports problems; fixes nothing."""
    if not root.is_dir():
        raise NotFound(f"{root} does not exist")
    databases = layout.databases(root)
    blobs = [path for path in layout.other_files(root) if _BLOB.fullmatch(path.name)]
    total = len(databases) + len(blobs)
    checked: list[CheckResult] = []
    for path in (*databases, *blobs):
        name = str(path.relative_to(root))
        if progress is not None:
            progress(name, len(checked), total)
        if path in blobs:
            checked.append(CheckResult(name, "blob", _blob_problems(path)))
        else:
            checked.append(CheckResult(name, "database", tuple(problems_of(path))))
    if progress is not None:
        progress("", total, total)
    return VerifyReport(root, tuple(checked))


def _blob_problems(path: Path) -> tuple[str, ...]:
    found = inspection.checksum(path)
    if found == path.name.removesuffix(".blob"):
        return ()
    return (f"{path}: SHA-256 of the content is {found}",)
