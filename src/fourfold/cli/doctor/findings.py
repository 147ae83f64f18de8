"""Results of checks, and running them so that one failing check does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fourfold.errors import FourfoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from fourfold.settings import Settings

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject, its status, and the command that fixes it."""

    check: str
    status: Status
    message: str
    fix: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return the finding as a dict, for JSON."""
        return {
            "check": self.check,
            "status": self.status,
            "message": self.message,
            "fix": self.fix,
            "facts": dict(self.facts),
        }


@dataclass(frozen=True, slots=True)
class DoctorTarget:
    """The subject of the checks: the machine, and the store in `root` if there is one."""

    root: Path | None
    environ: Mapping[str, str]
    flags: Mapping[str, str]
    settings: Settings | None
    """None if the settings are invalid; checks that need them are skipped."""
    start_spark: bool = False


def examine(
    target: DoctorTarget, checks: Mapping[str, Callable[[DoctorTarget], Iterable[Finding]]]
) -> Iterator[Finding]:
    """Run every check; an error inside one becomes its finding."""
    for name, check in checks.items():
        try:
            yield from check(target)
        except FourfoldError as error:
            yield Finding(name, "fail", error.message, error.hint, {"kind": error.kind})
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            yield Finding(name, "fail", f"{where}{error.strerror or error}")
