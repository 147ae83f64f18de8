"""Records of the runtime: settings of turns, their results, and the errors that end them early."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from typing import Final as Constant

import msgspec

from fourfold import limits
from fourfold.errors import CapabilityDenied, FourfoldError, InvalidInput

SESSION_ERROR_CHARS_MAX = 4_000
"""Length of an error message stored with a turn or an eval."""

FINAL: Constant = "final"
WAITING: Constant = "waiting"
ERROR: Constant = "error"
TIMEOUT: Constant = "timeout"
BUDGET: Constant = "budget-exceeded"
STOPPED: Constant = "stopped"
RUNNING: Constant = "running"
SUSPENDED: Constant = "suspended"
PREVIEW_CHARS: Constant = 240


@dataclass(frozen=True, slots=True)
class Final:
    """Result of a step function that ends the turn with an answer."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """Result of a step function that ends the turn with a question to a person.

    The session waits until its next turn, whose task is the answer.
    """

    value: Any


class TurnResult(msgspec.Struct, frozen=True):
    """The result of a turn.

    `status` is final, waiting, suspended, error, timeout, budget-exceeded or stopped. `value` and
    `head` belong to a final turn, or to one that waits for a person: then `value` is the question.
    A suspended turn waits until `due_at`, for `signal`, or for a child. `error` is the reason of
    another outcome. `edge` is the lineage edge to the head of a child.
    """

    session: str
    status: str
    turn_id: int | None = None
    value: Any = None
    head: str | None = None
    error: dict[str, Any] | None = None
    usage: dict[str, Any] = {}
    edge: str | None = None
    due_at: str | None = None
    signal: str | None = None

    @property
    def failed(self) -> bool:
        """True if the turn ended without an answer and without a question."""
        return self.status not in {FINAL, WAITING, SUSPENDED}


class TurnEnded(BaseException):
    """Ends a turn from inside its step. Not an Exception, so that no step function catches it."""

    def __init__(
        self, status: str, kind: str, message: str, error: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error or {"type": kind, "message": message, "data": {}}


class TurnSuspended(BaseException):
    """Leaves a step that waits: it is run again when the turn is due."""

    def __init__(
        self,
        due_at: datetime | None = None,
        signal: str | None = None,
        *,
        after: int = 0,
        waits_for: Sequence[str] = (),
    ) -> None:
        super().__init__("the turn is suspended")
        self.due_at = due_at
        self.signal = signal
        self.after = after
        """Event until which the signal was looked for."""
        self.waits_for = waits_for
        """Ids of children whose turns are suspended."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a call that raises, with exponential backoff. The attempts are recorded."""

    attempts: int = 3
    """Maximum number of attempts, with the first one."""
    delay_s: float = 1.0
    """Time before the second attempt."""
    factor: float = 2.0
    """Growth of the time before each further attempt."""
    delay_max_s: float = 3_600.0
    on: tuple[type[Exception], ...] = (Exception,)
    """Errors after which the call is repeated; others are its result."""

    def __post_init__(self) -> None:
        _check_amount(self.attempts, "attempts", whole=True)
        if self.attempts < 1:
            raise InvalidInput(f"attempts must be at least 1, got {self.attempts}")
        for name in ("delay_s", "factor", "delay_max_s"):
            _check_amount(getattr(self, name), name)
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise InvalidInput(f"on must be a tuple of exception classes, got {self.on!r:.100}")

    def delay(self, attempt: int) -> float:
        """Return the seconds between an attempt, from 1, and the next one."""
        try:
            return min(self.delay_max_s, self.delay_s * self.factor ** (attempt - 1))
        except OverflowError:
            return self.delay_max_s


@dataclass(frozen=True, slots=True)
class Timing:
    """Clocks and durations of the turns of a runtime."""

    clock: Callable[[], float]
    """Clock of `timeout_s`."""
    now: Callable[[], datetime]
    """Clock of timers, which are recorded."""
    lease_s: float
    suspend_after_s: float
    """A turn that waits longer than this is suspended; otherwise its worker waits."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """Settings of turns."""

    step: Callable[..., Any]
    max_steps: int = limits.SESSION_STEPS_MAX
    timeout_s: float | None = None
    budget: Mapping[str, float] | None = None
    summarize: Callable[..., Any] | None = None
    compact_chars: int | None = None

    def __post_init__(self) -> None:
        for name in ("step", "summarize"):
            value = getattr(self, name)
            if not callable(value) and (name == "step" or value is not None):
                raise InvalidInput(f"{name} is {type(value).__name__}, which cannot be called")
        _check_amount(self.max_steps, "max_steps", whole=True)
        if self.timeout_s is not None:
            _check_amount(self.timeout_s, "timeout_s")
        if self.compact_chars is not None:
            _check_amount(self.compact_chars, "compact_chars", whole=True)
            if self.summarize is None:
                raise InvalidInput("compact_chars needs a function that summarizes")
        for name, most in (self.budget or {}).items():
            _check_amount(most, f"the budget of {name!r}")


def _check_amount(value: Any, name: str, *, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not 0 <= value < 2**63:
        raise InvalidInput(f"{name} must be a number from 0 on, got {repr(value)[:100]}")


def format_due(due: datetime) -> str:
    """Return the time of a timer as events store it."""
    return due.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def described(error: BaseException) -> dict[str, Any]:
    """Return an error as events store it: the same wherever and whenever it is raised."""
    kind = error.kind if isinstance(error, FourfoldError) else type(error).__name__
    try:
        message = str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - the __str__ of an error may raise anything
        message = "the error has no readable message"
    return {"type": kind, "message": message[:SESSION_ERROR_CHARS_MAX], "data": {}}


Capability = list[str] | None
"""Names of the allowed calls, sorted; None allows all."""


def check_capability(value: Any) -> Capability:
    """Return a capability; raise InvalidInput if a value is not one."""
    if value is None:
        return None
    names = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if isinstance(value, str) or not all(type(name) is str and name for name in names):
        raise InvalidInput(f"a capability is a list of names, not {repr(value)[:100]}")
    return sorted(set(names))


def clamp(*several: Capability) -> Capability:
    """Return the intersection of several capabilities."""
    sets = [set(names) for names in several if names is not None]
    return sorted(set.intersection(*sets)) if sets else None


def check_source(caller: Capability, source: Capability, sid: str) -> None:
    """Raise CapabilityDenied if the session to attach to has rights that the caller lacks."""
    if caller is None:
        return
    more = None if source is None else sorted(set(source) - set(caller))
    if more is None or more:
        what = "everything" if more is None else ", ".join(more)
        raise CapabilityDenied(
            f"session {sid!r} has rights that its caller lacks: {what}",
            details={"session": sid, "caller": caller, "source": source},
        )
