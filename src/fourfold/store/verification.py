"""Verification of a whole store: every database and every content-addressed file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fourfold import html
from fourfold.errors import CorruptData, FourfoldError, NotFound
from fourfold.kernel import inspection
from fourfold.models.model import all_models, model_of
from fourfold.models.problem import Problem, to_problems
from fourfold.store import layout
from fourfold.tabular import Rows

Progress = Callable[[str, int, int], None]
"""Called with the current subject, the number of steps done, and the number of all steps."""

_BLOB = re.compile(r"([0-9a-f]{64})\.blob")
_PENDING = re.compile(r"[0-9]+ migrations are pending")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One checked database or file, and its problems."""

    path: str
    what: str
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of verifying a store."""

    root: Path
    checked: tuple[CheckResult, ...]

    def _repr_html_(self) -> str:
        state = "without problems" if self.ok else f"{len(self.problems)} problems"
        checks = html.table(
            ("database", "kind", "problems"),
            ((check.path, check.what, len(check.problems)) for check in self.checked),
        )
        problems = Rows(self.problems, Problem)._repr_html_() if self.problems else ""
        caption = f"Verification of {self.root}: {state}"
        return html.fragment(checks, html.Html(problems), caption=caption)

    @property
    def ok(self) -> bool:
        """True if no check found a problem."""
        return all(check.ok for check in self.checked)

    @property
    def problems(self) -> list[Problem]:
        """All problems, in the order of the checks."""
        return [problem for check in self.checked for problem in check.problems]

    @property
    def damage(self) -> list[Problem]:
        """Problems that a restore can fix: all but the harmless ones."""
        models = all_models()
        return [
            problem
            for problem in self.problems
            if not _PENDING.search(problem.message)
            and not any(model.is_harmless(problem) for model in models)
        ]

    @property
    def is_outdated(self) -> bool:
        """True if the only problems are migrations that have not run yet."""
        return not self.ok and all(_PENDING.search(problem.message) for problem in self.problems)

    def with_(self, more: CheckResult) -> VerifyReport:
        """Return the report with the result of one more check."""
        return VerifyReport(self.root, (*self.checked, more))

    def raise_if_bad(self) -> None:
        """Raise CorruptData if a problem was found."""
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
            checked.append(CheckResult(name, "database", tuple(database_problems(path))))
    if progress is not None:
        progress("", total, total)
    return VerifyReport(root, tuple(checked))


def database_problems(path: Path) -> list[Problem]:
    """Return the problems of the database at `path`: file, counters, and the model's data."""
    try:
        model = model_of(path)
        if model is None:
            return to_problems(inspection.check(path))
        return list(model.verify(path))
    except FourfoldError as error:
        return [Problem(error.message)]


def _blob_problems(path: Path) -> tuple[Problem, ...]:
    checksum = inspection.checksum(path)
    if checksum == path.name.removesuffix(".blob"):
        return ()
    return (Problem(f"{path}: SHA-256 of the content is {checksum}"),)
