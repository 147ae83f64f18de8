"""A transaction as it was asked for: checked, encoded and sized before the database hears of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.documents import patch
from fourfold.models.documents.encoding import checked, trusted
from fourfold.models.documents.names import check_entity, check_session
from fourfold.models.documents.records import Op, Reads

_FIELDS: dict[str, frozenset[str]] = {
    "set": frozenset({"op", "id", "value"}),
    "patch": frozenset({"op", "id", "patches"}),
    "delete": frozenset({"op", "id"}),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: its text as the log keeps it, and its private, checked value."""

    op: Op
    id: str
    text: str | None
    value: Any


@dataclass(frozen=True, slots=True)
class Request:
    """A whole transaction, ready to be admitted."""

    branch: str
    session: str
    local_seq: int
    steps: tuple[Step, ...]
    reads: Reads
    preconditions: tuple[dict[str, Any], ...]
    original: str
    replayable: bool
    """Whether the caller named the request, so that it may come again."""

    @property
    def size(self) -> int:
        return 2 * len(self.original)


def make_request(
    operations: Sequence[Mapping[str, Any]],
    *,
    branch: str,
    session: str,
    local_seq: int,
    replayable: bool,
    reads: Reads | Mapping[str, Any] | None = None,
    preconditions: Sequence[Mapping[str, Any]] = (),
) -> Request:
    """Check everything that can be checked without the database."""
    check_session(session, local_seq)
    if not operations:
        raise InvalidInput("a transaction needs at least one operation")
    if len(operations) > limits.OPERATIONS_MAX:
        raise InvalidInput(
            f"a transaction takes at most {limits.OPERATIONS_MAX} operations, not {len(operations)}"
        )
    steps = tuple(_step(index, operation) for index, operation in enumerate(operations))
    asked = _reads(reads)
    _, conditions = checked(list(preconditions), "the preconditions")
    original = trusted(
        {
            "branch": branch,
            "local_seq": local_seq,
            "operations": [_shown(step) for step in steps],
            "preconditions": conditions,
            "reads": msgspec.to_builtins(asked),
        }
    )
    return Request(
        branch, session, local_seq, steps, asked, tuple(conditions), original, replayable
    )


def _step(index: int, operation: Mapping[str, Any]) -> Step:
    where = f"operation {index}"
    if not isinstance(operation, Mapping):
        raise InvalidInput(f"{where} is not an object")
    op = operation.get("op")
    fields = _FIELDS.get(op) if isinstance(op, str) else None
    if fields is None:
        raise InvalidInput(f"{where}: {op!r} is not an operation", hint="Use set, patch or delete.")
    if operation.keys() != fields:
        wrong = ", ".join(sorted(map(str, operation.keys() ^ fields)))
        raise InvalidInput(f"{where} ({op}) has wrong or missing fields: {wrong}")
    entity = check_entity(operation["id"])
    if op == "set":
        if not isinstance(operation["value"], dict):
            raise InvalidInput(
                f"{where}: the document of {entity!r} is not an object",
                hint='Wrap it: {"value": ...}.',
            )
        text, value = checked(operation["value"], f"the document of {entity!r}")
        return Step("set", entity, text, value)
    if op == "patch":
        text, patches = checked(operation["patches"], f"the patches of {entity!r}")
        return Step("patch", entity, text, patch.compile(patches))
    return Step("delete", entity, None, None)


def _shown(step: Step) -> dict[str, Any]:
    """The operation as `original` keeps it; its text goes in as it is."""
    shown: dict[str, Any] = {"op": step.op, "id": step.id}
    if step.text is not None:
        shown["value" if step.op == "set" else "patches"] = msgspec.Raw(step.text.encode())
    return shown


def _reads(reads: Reads | Mapping[str, Any] | None) -> Reads:
    if reads is None:
        return Reads()
    if isinstance(reads, Reads):
        return reads
    try:
        return msgspec.convert(reads, Reads)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the reads of the transaction: {error}") from error
