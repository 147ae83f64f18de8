"""Envelopes: a batch of operations that is accepted whole or not at all.

    {"trace_id": "...", "ops": [{"op": "parent_create", "app_id": 1, "type_key": "note",
                                 "owner_identity": 7, "payload": {...}}, ...]}

One envelope is one transaction and one number. All its operations are about one app and one owner.
`{"$op": 0}` in a payload points at the object that operation 0 of the same envelope makes, so that
a whole tree fits into one envelope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import (
    InvalidInput,
    NotFound,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
    RuleBroken,
)
from fourfold.models.graphs import validation
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.records import KINDS, ApplyResult, Kind
from fourfold.models.graphs.statements import REFERENCES, SQL, statements_of
from fourfold.models.graphs.writer import GraphTransaction

_ENVELOPE = frozenset({"ops", "trace_id"})
_OPERATION = frozenset(
    {"op", "app_id", "type_key", "type_id", "owner_identity", "payload", "expected"}
)
_FORBIDDEN = frozenset({"global_seq", "owner_identity", "type_id", "created_at", "updated_at"})
_ID_FIELDS: dict[Kind, str] = {kind: f"{kind}_id" for kind in KINDS}
_TARGETS: dict[Kind, tuple[tuple[str, Kind], ...]] = {
    kind: (*REFERENCES[kind], (_ID_FIELDS[kind], kind)) for kind in KINDS
}
"""The fields of a payload that name an object, and of which kind it is."""
_EMPTY: Mapping[str, Any] = {}
_OPERATIONS: dict[str, tuple[Kind, bool]] = {
    f"{kind}_{verb}": (kind, verb == "update") for kind in KINDS for verb in ("create", "update")
}
_VALUES = {str: "value_text", int: "value_number", float: "value_number", bytes: "value_blob"}


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One of many, so the collector is spared: it refers to nothing that refers to it."""

    kind: Kind
    update: bool
    app_id: int
    type_key: str | None
    type_id: int | None
    owner_identity: int
    payload: Mapping[str, Any]
    expected: int | None = None
    """Id of the row that an update replaces; None replaces the newest."""


class ParsedEnvelope(msgspec.Struct, frozen=True):
    """An envelope that was parsed, with its changes."""

    trace_id: str
    operations: tuple[Operation, ...]


def parse(envelope: Any) -> ParsedEnvelope:
    """Parse an envelope and check its shape, without the database."""
    fields = validation.check_fields(envelope, "envelope", _ENVELOPE)
    trace_id = validation.check_text(fields.get("trace_id"), "envelope.trace_id")
    ops = fields.get("ops")
    if not isinstance(ops, Sequence) or isinstance(ops, str | bytes) or not ops:
        raise InvalidInput("envelope.ops must be a list of at least one operation")
    if len(ops) > limits.ENVELOPE_OPERATIONS_MAX:
        raise InvalidInput(
            f"an envelope of {len(ops)} operations is more than {limits.ENVELOPE_OPERATIONS_MAX}"
        )
    operations: list[Operation] = []
    for at, item in enumerate(ops):
        try:
            operation = _checked(item)
        except InvalidInput as error:
            raise error.with_message(f"ops[{at}]: {error.message}") from None
        operations.append(operation)
        first = operations[0]
        if operation.app_id != first.app_id or operation.owner_identity != first.owner_identity:
            raise InvalidInput(f"ops[{at}] is about another app or another owner than ops[0]")
    return ParsedEnvelope(trace_id, tuple(operations))


def apply(handle: GraphTransaction, apps: Apps, parsed: ParsedEnvelope) -> ApplyResult:
    """Write the operations, in order, under one number."""
    operations, made = parsed.operations, _NewObjects([], [])
    handle.trace(parsed.trace_id)
    at = 0
    while at < len(operations):
        end = at + 1
        if not operations[at].update:
            # Objects of one kind that follow each other are written together.
            while end < len(operations) and _goes_with(operations[end], operations[at]):
                end += 1
        _apply_some(handle, apps, operations[at:end], at, made)
        at = end
    return ApplyResult(handle.seq, tuple(made.ids))


def apply_once(handle: GraphTransaction, apps: Apps, parsed: ParsedEnvelope) -> ApplyResult:
    """Write the operations, unless the app has an envelope with their trace id: return its result.

    Raises:
        ReplayMismatch: What was written with the trace id is not from these operations.
    """
    first = parsed.operations[0]
    apps.must_exist(handle.txn, first.app_id)
    row = handle.txn.one(SQL.envelopes_of_trace, (first.app_id, parsed.trace_id, 0, 1))
    if row is None:
        return apply(handle, apps, parsed)
    seq = int(row[0])
    written: list[tuple[int, int, tuple[Any, ...]]] = []
    for kind in KINDS:
        rows = handle.txn.all(statements_of(first.app_id, kind).written_under, (seq,))
        for position, object_id, version, type_id, owner in rows:
            written.append((position, object_id, (kind, version > 1, type_id, owner)))
    written.sort()
    shapes = [_shape(handle, apps, operation) for operation in parsed.operations]
    if shapes != [shape for _, _, shape in written]:
        raise ReplayMismatch(
            f"trace id {parsed.trace_id!r:.80} is that of other operations, under seq {seq}",
            hint="Use a new trace id for each new envelope.",
        )
    return ApplyResult(seq, tuple(object_id for _, object_id, _ in written))


def _shape(handle: GraphTransaction, apps: Apps, operation: Operation) -> tuple[Any, ...]:
    """Return what a row tells about the operation that wrote it."""
    kind, type_id = operation.kind, operation.type_id
    if type_id is None:
        assert operation.type_key is not None
        type_id = apps.type_id(handle.txn, operation.app_id, kind, operation.type_key)
    return kind, operation.update, type_id, operation.owner_identity


class _NewObjects(msgspec.Struct):
    """Objects that the operations so far have created or changed."""

    kinds: list[Kind]
    ids: list[int]


def _goes_with(operation: Operation, first: Operation) -> bool:
    return operation.kind == first.kind and not operation.update


def _apply_some(
    handle: GraphTransaction,
    apps: Apps,
    run: Sequence[Operation],
    first: int,
    made: _NewObjects,
) -> None:
    """Apply operations that can be written together; an error says which one it is about."""
    kind, at = run[0].kind, first
    try:
        if run[0].update:
            ids = [_update(handle, apps, run[0], made)]
        else:
            rows = []
            for at, operation in enumerate(run, start=first):  # noqa: B007
                rows.append(_new_row(handle, apps, operation, made))
            at = first
            ids = handle.insert(run[0].app_id, kind, rows)
    except (InvalidInput, NotFound, PreconditionFailed, Refused) as error:
        if len(run) > 1 and not isinstance(error, RuleBroken):
            # The others are raised before anything is written: one by one the culprit shows itself.
            for place, operation in enumerate(run, start=first):
                _apply_some(handle, apps, [operation], place, made)
            return
        raise error.with_message(f"ops[{at}]: {error.message}") from None
    made.kinds.extend([kind] * len(ids))
    made.ids.extend(ids)


def _checked(operation: Any) -> Operation:
    op = operation
    if type(operation) is not dict or not _OPERATION.issuperset(operation):
        op = validation.check_fields(operation, "operation", _OPERATION)
    name = op.get("op")
    if type(name) is not str or name not in _OPERATIONS:
        raise InvalidInput(
            f"{validation.format_value(name)} is not an operation",
            hint="One of parent, attr, edge, rating, then _create or _update.",
        )
    kind, update = _OPERATIONS[name]
    type_key, type_id = op.get("type_key"), op.get("type_id")
    if (type_key is None) == (type_id is None):
        raise InvalidInput("an operation has type_key or type_id, and not both")
    if type_key is not None:
        validation.check_text(type_key, "type_key")
    else:
        validation.check_integer(type_id, "type_id", least=1)
    payload = op.get("payload", _EMPTY)
    if type(payload) is not dict and not isinstance(payload, Mapping):
        raise InvalidInput(f"payload must be a mapping, got {validation.format_value(payload)}")
    if not _FORBIDDEN.isdisjoint(payload):
        own = sorted(_FORBIDDEN & payload.keys())
        raise InvalidInput(f"payload cannot set {', '.join(own)}")
    app_id, owner = op.get("app_id"), op.get("owner_identity")
    if type(app_id) is not int or type(owner) is not int or app_id < 0 or owner < 0:
        validation.check_integer(app_id, "app_id")
        validation.check_integer(owner, "owner_identity")
    expected = op.get("expected")
    if expected is not None:
        validation.check_integer(expected, "expected", least=1)
        if not update:
            raise InvalidInput(f"expected is for updates, and {name} creates an object")
    return Operation(kind, update, app_id, type_key, type_id, owner, payload, expected)


def _new_row(
    handle: GraphTransaction, apps: Apps, operation: Operation, made: _NewObjects
) -> dict[str, Any]:
    row = _columns(handle, apps, operation, made)
    if _ID_FIELDS[operation.kind] in row:
        raise InvalidInput(f"a new {operation.kind} cannot choose its id")
    return row


def _update(handle: GraphTransaction, apps: Apps, operation: Operation, made: _NewObjects) -> int:
    kind, app_id = operation.kind, operation.app_id
    row = _columns(handle, apps, operation, made)
    object_id = row.pop(_ID_FIELDS[kind], None)
    if object_id is None:
        raise InvalidInput(f"an update of {kind} needs {_ID_FIELDS[kind]}")
    old = handle.newest(app_id, kind, object_id)
    if old.owner_identity != operation.owner_identity:
        raise Refused(
            f"{kind} {object_id} belongs to {old.owner_identity}, not to {operation.owner_identity}"
        )
    handle.update(app_id, kind, object_id, row, expected=operation.expected)
    return int(object_id)


def _columns(
    handle: GraphTransaction, apps: Apps, operation: Operation, made: _NewObjects
) -> dict[str, Any]:
    """Return a payload as columns: `value` by its type, and `$op` as an id."""
    kind, type_id = operation.kind, operation.type_id
    row = dict(operation.payload)
    for name, target in _TARGETS[kind]:
        pointed = row.get(name)
        if pointed is None or type(pointed) is int:
            continue
        if type(pointed) is dict or isinstance(pointed, Mapping):
            row[name] = _made(pointed, made, name, target)
    if "value" in row:
        value = row.pop("value")
        column = _VALUES.get(type(value))
        if column is None:
            column, value = "value_json", validation.encode_json(value, "payload.value")
        if column in row:
            raise InvalidInput(f"payload has both value and {column}")
        row[column] = value
    if type_id is None:
        assert operation.type_key is not None
        type_id = apps.type_id(handle.txn, operation.app_id, kind, operation.type_key)
    row["type_id"], row["owner_identity"] = type_id, operation.owner_identity
    return row


def _made(pointed: Mapping[str, Any], made: _NewObjects, name: str, target: Kind) -> int:
    at = pointed.get("$op")
    if len(pointed) != 1 or type(at) is not int or not 0 <= at < len(made.ids):
        raise InvalidInput(f"{name}: {validation.format_value(pointed)} names no earlier operation")
    if made.kinds[at] != target:
        raise InvalidInput(f"{name}: operation {at} is about a {made.kinds[at]}, not a {target}")
    return made.ids[at]
