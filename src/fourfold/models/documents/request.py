"""Requests of transactions: checked, encoded and measured before the database is involved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, overload

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.documents import patch
from fourfold.models.documents.encoding import checked, decode, trusted
from fourfold.models.documents.records import Document, Op, Reads, Revision
from fourfold.models.documents.validation import check_entity, check_known_branch, check_session

OPERATIONS_MAX: Final = 100_000
"""Operations in one commit: bounds how long one transaction holds the writer."""

_FIELDS: dict[str, frozenset[str]] = {
    "set": frozenset({"op", "id", "value"}),
    "patch": frozenset({"op", "id", "patches"}),
    "delete": frozenset({"op", "id"}),
}


DocumentCheck = Callable[[str, Document | None], None]
"""Raises InvalidInput if the new document of an entity is not valid; None is a deleted one."""


class RequestStep(msgspec.Struct, frozen=True, gc=False):
    """One operation: its text as the log keeps it, and its private, checked value."""

    op: Op
    id: str
    text: str | None
    value: Any


class DocumentRequest(msgspec.Struct, frozen=True):
    """A whole transaction, ready to be admitted."""

    branch: str
    session: str
    local_seq: int
    steps: tuple[RequestStep, ...]
    reads: Reads
    preconditions: tuple[dict[str, Any], ...]
    original: str
    replayable: bool
    """True if the caller named the request, so that it can be repeated."""
    created_at: str = ""
    """Time at which another store accepted it, if one did."""
    check: DocumentCheck | None = None
    """Called with each entity and its new document before anything is written."""

    @property
    def size(self) -> int:
        """Approximate number of bytes that are written."""
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
) -> DocumentRequest:
    """Check everything that can be checked without the database."""
    if replayable:
        # A request without a session gets one of this process.
        check_session(session, local_seq)
    check_known_branch(branch)
    if not isinstance(operations, list | tuple):
        raise InvalidInput("the operations of a transaction are a list")
    if not operations:
        raise InvalidInput("a transaction needs at least one operation")
    if len(operations) > OPERATIONS_MAX:
        raise InvalidInput(
            f"a transaction takes at most {OPERATIONS_MAX} operations, not {len(operations)}"
        )
    steps = tuple(_step(index, operation) for index, operation in enumerate(operations))
    checked_reads, reads_text = _reads(reads)
    conditions = _conditions(preconditions)
    # Put together from texts that were made before. It is what `trusted` would give for the whole.
    original = (
        f'{{"branch":{trusted(branch)},"local_seq":{local_seq},'
        f'"operations":[{",".join(map(_shown, steps))}],'
        f'"preconditions":{trusted(conditions) if conditions else "[]"},"reads":{reads_text}}}'
    )
    return DocumentRequest(
        branch, session, local_seq, steps, checked_reads, tuple(conditions), original, replayable
    )


def patch_operation(entity: str, patches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the operation that applies patches to an entity."""
    listed = list(patches) if isinstance(patches, tuple) else patches
    return {"op": "patch", "id": entity, "patches": listed}


class WriteCounts(Sequence[Revision]):
    """Revisions that a request writes under a seq; they belong to the caller.

    They are built when they are first read, because most callers never do.
    """

    __slots__ = ("_made", "_request", "_seq")
    __hash__ = None  # type: ignore[assignment]  # what it holds may be changed

    def __init__(self, request: DocumentRequest, seq: int) -> None:
        self._request = request
        self._seq = seq
        self._made: tuple[Revision, ...] | None = None

    def _all(self) -> tuple[Revision, ...]:
        if self._made is None:
            branch, seq = self._request.branch, self._seq
            self._made = tuple(
                Revision(branch, step.id, seq, index, step.op, _data(step))
                for index, step in enumerate(self._request.steps)
            )
        return self._made

    @overload
    def __getitem__(self, index: int) -> Revision: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Revision, ...]: ...
    def __getitem__(self, index: int | slice) -> Revision | tuple[Revision, ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._request.steps)

    def __eq__(self, other: object) -> bool:
        return (
            tuple(other) == self._all()
            if isinstance(other, WriteCounts | tuple)
            else NotImplemented
        )

    def __repr__(self) -> str:
        return repr(self._all())


def _data(step: RequestStep) -> Any:
    # The value of a set is the caller's; that of a patch is a program.
    return decode(step.text) if step.op == "patch" and step.text is not None else step.value


def _step(index: int, operation: Mapping[str, Any]) -> RequestStep:
    if type(operation) is not dict and not isinstance(operation, Mapping):
        raise InvalidInput(f"operation {index} is not an object")
    op = operation.get("op")
    fields = _FIELDS.get(op) if isinstance(op, str) else None
    if fields is None:
        raise InvalidInput(
            f"operation {index}: {op!r:.100} is not an operation", hint="Use set, patch or delete."
        )
    if operation.keys() != fields:
        wrong = ", ".join(sorted(map(str, operation.keys() ^ fields)))
        raise InvalidInput(f"operation {index} ({op}) has wrong or missing fields: {wrong}")
    entity = check_entity(operation["id"])
    if op == "set":
        if not isinstance(operation["value"], dict):
            raise InvalidInput(
                f"operation {index}: the document of {entity!r} is not an object",
                hint='Wrap it: {"value": ...}.',
            )
        text, value = checked(operation["value"], "the document", entity)
        return RequestStep("set", entity, text, value)
    if op == "patch":
        text, patches = checked(operation["patches"], "the patches", entity)
        return RequestStep("patch", entity, text, patch.compile(patches))
    return RequestStep("delete", entity, None, None)


def _shown(step: RequestStep) -> str:
    """Return the operation as `original` stores it; its text is included unchanged."""
    if step.op == "set":
        return f'{{"id":{trusted(step.id)},"op":"set","value":{step.text}}}'
    if step.op == "patch":
        return f'{{"id":{trusted(step.id)},"op":"patch","patches":{step.text}}}'
    return f'{{"id":{trusted(step.id)},"op":"delete"}}'


_NO_READS = Reads()
_NO_READS_TEXT = trusted(_NO_READS)


def _reads(reads: Reads | Mapping[str, Any] | None) -> tuple[Reads, str]:
    """Return the reads that the author declared, and their text with every default."""
    if reads is None:
        return _NO_READS, _NO_READS_TEXT
    try:
        # Records check nothing when they are made, so what they hold is checked here.
        converted = msgspec.convert(_plain(reads), Reads)
        text = trusted(converted)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the reads of the transaction: {error}") from error
    for confirmed in converted.confirmed:
        check_entity(confirmed.id)
    for pending in converted.pending:
        check_entity(pending.id)
    return converted, text


def _plain(reads: Reads | Mapping[str, Any]) -> dict[str, Any]:
    """Return dictionaries instead of records; values are unchanged."""
    if not isinstance(reads, Reads | Mapping):
        raise TypeError("neither Reads nor an object")
    parts = msgspec.structs.asdict(reads) if isinstance(reads, Reads) else dict(reads)
    return {
        name: [_fields(read) for read in part] if isinstance(part, list | tuple) else part
        for name, part in parts.items()
    }


def _fields(read: Any) -> Any:
    return msgspec.structs.asdict(read) if isinstance(read, msgspec.Struct) else read


_CONDITIONS: dict[str, frozenset[str]] = {
    "committed": frozenset({"kind", "local_seq"}),
    "absent": frozenset({"kind", "id"}),
    "exists": frozenset({"kind", "id"}),
    "not_exists": frozenset({"kind", "id"}),
    "seq": frozenset({"kind", "id", "seq"}),
    "in_order": frozenset({"kind"}),
}


def _conditions(preconditions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not preconditions and isinstance(preconditions, list | tuple):
        return []
    if not isinstance(preconditions, list | tuple):
        raise InvalidInput("the preconditions of a transaction are a list")
    _, conditions = checked(list(preconditions), "the preconditions")
    for condition in conditions:
        kind = condition.get("kind") if isinstance(condition, dict) else None
        fields = _CONDITIONS.get(kind) if isinstance(kind, str) else None
        if fields is None:
            raise InvalidInput(
                f"{condition!r:.60} is not a precondition",
                hint=f"Use: {', '.join(_CONDITIONS)}.",
            )
        if condition.keys() != fields:
            wrong = ", ".join(sorted(condition.keys() ^ fields))
            raise InvalidInput(f"the precondition {kind!r} has wrong or missing fields: {wrong}")
        if "id" in fields:
            check_entity(condition["id"])
        for name in fields & {"seq", "local_seq"}:
            number = condition[name]
            if type(number) is not int or not 0 <= number < 2**63:
                raise InvalidInput(f"{name} {number!r:.100} is not a whole number from 0 on")
    return list(conditions)
