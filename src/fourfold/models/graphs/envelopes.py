"""Envelopes: a batch of operations that is accepted whole or not at all.

    {"trace_id": "...", "ops": [{"op": "parent_create", "app_id": 1, "type_key": "note",
                                 "owner_identity": 7, "payload": {...}}, ...]}

One envelope is one transaction and one number. All its operations are about one app and one owner.
`{"$op": 0}` in a payload points at the object that operation 0 of the same envelope makes, so that
a whole tree fits into one envelope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, Refused
from fourfold.models.graphs import checks
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.records import KINDS, Applied, Kind
from fourfold.models.graphs.statements import POINTERS
from fourfold.models.graphs.writer import GraphTransaction

_ENVELOPE = frozenset({"ops", "trace_id"})
_OPERATION = frozenset({"op", "app_id", "type_key", "type_id", "owner_identity", "payload"})
_FORBIDDEN = frozenset({"global_seq", "owner_identity", "type_id", "created_at", "updated_at"})
_ID_FIELDS: dict[Kind, str] = {kind: f"{kind}_id" for kind in KINDS}
_VALUES = {str: "value_text", int: "value_number", float: "value_number", bytes: "value_blob"}


class Operation(NamedTuple):
    kind: Kind
    update: bool
    app_id: int
    type_key: str | None
    type_id: int | None
    owner_identity: int
    payload: Mapping[str, Any]


class Parsed(NamedTuple):
    trace_id: str
    operations: tuple[Operation, ...]


def parse(envelope: Any) -> Parsed:
    """An envelope whose shape is right; nothing of the database is asked."""
    given = checks.fields(envelope, "envelope", _ENVELOPE)
    trace_id = checks.text(given.get("trace_id"), "envelope.trace_id")
    ops = given.get("ops")
    if not isinstance(ops, Sequence) or isinstance(ops, str | bytes) or not ops:
        raise InvalidInput("envelope.ops must be a list of at least one operation")
    if len(ops) > limits.ENVELOPE_OPERATIONS_MAX:
        raise InvalidInput(
            f"an envelope of {len(ops)} operations is more than {limits.ENVELOPE_OPERATIONS_MAX}"
        )
    operations = tuple(_operation(each, at) for at, each in enumerate(ops))
    first = operations[0]
    for at, each in enumerate(operations):
        if (each.app_id, each.owner_identity) != (first.app_id, first.owner_identity):
            raise InvalidInput(f"ops[{at}] is about another app or another owner than ops[0]")
    return Parsed(trace_id, operations)


def apply(handle: GraphTransaction, apps: Apps, parsed: Parsed) -> Applied:
    """Write the operations, in order, under one number."""
    made: list[int] = []
    for at, operation in enumerate(parsed.operations):
        try:
            made.append(_apply_one(handle, apps, operation, made))
        except FourfoldError as error:
            raise error.with_message(f"ops[{at}]: {error.message}") from None
    return Applied(handle.seq, tuple(made))


def _operation(given: Any, at: int) -> Operation:
    try:
        return _checked(given)
    except InvalidInput as error:
        raise error.with_message(f"ops[{at}]: {error.message}") from None


def _checked(given: Any) -> Operation:
    op = checks.fields(given, "operation", _OPERATION)
    kind, _, verb = str(op.get("op")).partition("_")
    if verb not in {"create", "update"}:
        raise InvalidInput(
            f"{checks.shown(op.get('op'))} is not an operation",
            hint="One of parent, attr, edge, rating, then _create or _update.",
        )
    type_key, type_id = op.get("type_key"), op.get("type_id")
    if (type_key is None) == (type_id is None):
        raise InvalidInput("an operation has type_key or type_id, and not both")
    payload = op.get("payload", {})
    if not isinstance(payload, Mapping):
        raise InvalidInput(f"payload must be a mapping, not {checks.shown(payload)}")
    if own := sorted(_FORBIDDEN & payload.keys()):
        raise InvalidInput(f"payload cannot set {', '.join(own)}")
    return Operation(
        checks.kind(kind),
        verb == "update",
        checks.integer(op.get("app_id"), "app_id"),
        None if type_key is None else checks.text(type_key, "type_key"),
        None if type_id is None else checks.integer(type_id, "type_id", least=1),
        checks.integer(op.get("owner_identity"), "owner_identity"),
        payload,
    )


def _apply_one(handle: GraphTransaction, apps: Apps, operation: Operation, made: list[int]) -> int:
    kind, app_id = operation.kind, operation.app_id
    row = _columns(kind, operation.payload, made)
    object_id = row.pop(_ID_FIELDS[kind], None)
    type_id = operation.type_id
    if type_id is None:
        assert operation.type_key is not None
        type_id = apps.type_id(handle.txn, app_id, kind, operation.type_key)
    row |= {"type_id": type_id, "owner_identity": operation.owner_identity}
    if not operation.update:
        if object_id is not None:
            raise InvalidInput(f"a new {kind} cannot choose its id")
        return handle.insert(app_id, kind, [row], checked=True)[0]
    if object_id is None:
        raise InvalidInput(f"an update of {kind} needs {_ID_FIELDS[kind]}")
    old = handle.newest(app_id, kind, object_id)
    if old.owner_identity != operation.owner_identity:
        raise Refused(
            f"{kind} {object_id} belongs to {old.owner_identity}, not to {operation.owner_identity}"
        )
    handle.update(app_id, kind, object_id, row)
    return int(object_id)


def _columns(kind: Kind, payload: Mapping[str, Any], made: list[int]) -> dict[str, Any]:
    """A payload as columns: `value` goes where its type belongs, and `$op` becomes an id."""
    row = dict(payload)
    for name in (*POINTERS[kind], _ID_FIELDS[kind]):
        pointed = row.get(name)
        if isinstance(pointed, Mapping):
            row[name] = _made(pointed, made, name)
    if "value" in row:
        value = row.pop("value")
        if type(value) in _VALUES:
            row[_VALUES[type(value)]] = value
        else:
            row["value_json"] = checks.as_json(value, "payload.value")
    return row


def _made(pointed: Mapping[str, Any], made: list[int], name: str) -> int:
    at = pointed.get("$op")
    if set(pointed) != {"$op"} or type(at) is not int or not 0 <= at < len(made):
        raise InvalidInput(f"{name}: {checks.shown(pointed)} names no earlier operation")
    return made[at]
