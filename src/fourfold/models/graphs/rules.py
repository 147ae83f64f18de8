"""Rules of types: which types an edge joins, which attributes an object must have, and how many.

    {"on": ["person"], "to": ["company"], "most": 1}         an edge
    {"on": ["person"], "value": "text", "unique": true}      an attribute
    {"on": ["person"], "value": "number"}                    a rating

Rules are checked in the transaction that writes, after its rows are there; the attributes that a
new object must have are checked at its end. Rows that arrive by sync are checked for what every
node finds alike: the types of their ends, and the kind of their value. A row that breaks such a
rule is stored and not applied. How many there are and whether a value is unique depends on what
else has arrived, so sync does not check it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from fourfold.errors import InvalidInput, NotFound, RuleBroken
from fourfold.kernel import Queries, ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.intervals import KEY_CHARS
from fourfold.models.graphs.records import SYSTEM_APP, Kind
from fourfold.models.graphs.statements import newest_of, statements_of

_TEMPLATES = load_queries("fourfold.models.graphs", "rules.sql")
_LAST_ID: Final = (1 << 63) - 1
CHECK_ROWS: Final = 10_000
"""Rows that are checked at a time for a new rule."""
REASON: Final = "rule: "
"""How the reason of a row that is not applied begins if it breaks a rule."""
FIRST_POINTERS: Final[dict[Kind, tuple[str, str]]] = {
    "attr": ("parent_id", "belong to"),
    "edge": ("src_parent_id", "start at"),
    "rating": ("target_parent_id", "rate"),
}
"""The column by which a row belongs to a parent, and its meaning."""
_FIELDS: Final[dict[Kind, frozenset[str]]] = {
    "parent": frozenset(),
    "attr": frozenset({"on", "value", "unique", "required", "most"}),
    "edge": frozenset({"on", "to", "most", "most_in"}),
    "rating": frozenset({"on", "value"}),
}
_HINT: Final = (
    'A rule is a JSON object: of an edge {"on": ["person"], "to": ["person"], "most": 1}, of an '
    'attribute {"on": ["person"], "value": "text", "unique": true, "required": true}.'
)


class TypeRule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A rule of one type of attributes, edges or ratings."""

    on: tuple[str, ...] | None = None
    """Keys of types of parents: where an edge starts, what an attribute or a rating belongs to."""
    to: tuple[str, ...] | None = None
    """Keys of types of parents at which an edge ends."""
    value: Literal["text", "number", "json", "blob"] | None = None
    """Kind of the value of an attribute or a rating."""
    unique: bool = False
    """No two attributes of the type have the same text or number."""
    required: bool = False
    """Every new parent, of the types `on` if they are given, has such an attribute."""
    most: int | None = None
    """Maximum number of attributes of the type at a parent, or of edges from it."""
    most_in: int | None = None
    """Maximum number of edges of the type to a parent."""


class _KnownRule(NamedTuple):
    """The rule of a type of an app, with the ids of the types that it names as JSON."""

    type_id: int
    type_key: str
    rule: TypeRule
    on: str | None
    to: str | None


class TypeRules:
    """The rules of the types of one app."""

    def __init__(self, app_id: int, rules: Iterable[tuple[Kind, _KnownRule]]) -> None:
        self._app_id = app_id
        self._sql = rule_statements(app_id)
        self._rules: dict[Kind, list[_KnownRule]] = {}
        for kind, known in rules:
            self._rules.setdefault(kind, []).append(known)

    @property
    def has_required(self) -> bool:
        """True if new parents must have some attributes."""
        return any(known.rule.required for known in self._rules.get("attr", ()))

    def check(self, txn: ReadTransaction, kind: Kind, first: int, last: int) -> None:
        """Raise RuleBroken if one of some rows, which were written, breaks a rule."""
        for known in self._rules.get(kind, ()):
            for sql, more, what in self._checks(kind, known):
                object_id = txn.value(sql, (first, last, known.type_id, *more))
                if object_id is not None:
                    raise RuleBroken(
                        f"{kind} {object_id} in app {self._app_id}: {known.type_key!r} {what}"
                    )

    def check_required(self, txn: ReadTransaction, first: int, last: int) -> None:
        """Raise RuleBroken if one of some parents lacks an attribute."""
        for known in self._rules.get("attr", ()):
            if known.rule.required:
                params = (first, last, known.type_id, known.on)
                object_id = txn.value(self._sql.lacking, params)
                if object_id is not None:
                    raise RuleBroken(
                        f"parent {object_id} in app {self._app_id} must have {known.type_key!r}",
                        hint="Write the object and its attributes in one transaction.",
                    )

    def fault(
        self,
        kind: Kind,
        type_key: str,
        on: str | None,
        to: str | None,
        values: Mapping[str, Any],
    ) -> str | None:
        """Return why a row of another node breaks a rule, or None.

        Args:
            kind: The kind of the row.
            type_key: The key of its type.
            on: The key of the type of the parent that it belongs to or starts at, if it is one.
            to: The same of the parent at which it ends.
            values: The columns of its value.
        """
        for known in self._rules.get(kind, ()):
            if known.type_key != type_key:
                continue
            rule = known.rule
            if rule.on is not None and on not in rule.on:
                return f"{type_key!r} must {FIRST_POINTERS[kind][1]} {_either(rule.on)}"
            if rule.to is not None and to not in rule.to:
                return f"{type_key!r} must end at {_either(rule.to)}"
            if rule.value is not None and values[f"value_{rule.value}"] is None:
                return f"{type_key!r} must have a value of {rule.value}"
        return None

    def _checks(self, kind: Kind, known: _KnownRule) -> Iterator[tuple[str, tuple[Any, ...], str]]:
        """Yield a statement for each part of a rule, with its parameters and its meaning."""
        rule = known.rule
        if rule.on is not None:
            pointer, verb = FIRST_POINTERS[kind]
            sql = _fill(self._sql.wrong_end, kind=kind, pointer=pointer)
            yield sql, (known.on,), f"must {verb} {_either(rule.on)}"
        if rule.to is not None:
            sql = _fill(self._sql.wrong_end, kind=kind, pointer="dst_parent_id")
            yield sql, (known.to,), f"must end at {_either(rule.to)}"
        if rule.value is not None:
            sql = _fill(self._sql.wrong_value, kind=kind, column=f"value_{rule.value}")
            yield sql, (), f"must have a value of {rule.value}"
        if rule.unique:
            yield self._sql.not_unique, (), "must be unique, and another one has this value"
        if rule.most is not None:
            sql = getattr(self._sql, f"too_many_{kind}")
            yield sql, (rule.most,), f"may be {rule.most} times at one parent"
        if rule.most_in is not None:
            what = f"may lead {rule.most_in} times to one parent"
            yield self._sql.too_many_in, (rule.most_in,), what


@lru_cache(maxsize=4096)
def rule_statements(app_id: int) -> Queries:
    """Return the statements about the rules of one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    places = {
        "n": number,
        "chars": str(KEY_CHARS),
        "newest_of_r": newest_of(app_id, "attr", "r.object_id", str(_LAST_ID)),
        "newest_of_v": newest_of(app_id, "attr", "v.object_id", str(_LAST_ID)),
    }
    filled = {name: _fill(getattr(_TEMPLATES, name), **places) for name in _TEMPLATES}
    return Queries(f"rules of app {number}", filled)


def read_rules(snapshot: ReadTransaction, apps: Apps, app_id: int) -> TypeRules | None:
    """Return the rules of an app, or None if it has none."""
    if app_id == SYSTEM_APP:
        return None
    rows = snapshot.all(rule_statements(app_id).rules)
    if not rows:
        return None

    rules: list[tuple[Kind, _KnownRule]] = []
    for type_id, kind, type_key, text in rows:
        rule = msgspec.json.decode(text, type=TypeRule)
        rules.append((kind, _known_rule(snapshot, apps, app_id, (type_id, type_key, rule))))
    return TypeRules(app_id, rules)


def _known_rule(
    snapshot: ReadTransaction, apps: Apps, app_id: int, of: tuple[int, str, TypeRule]
) -> _KnownRule:
    def ids(keys: tuple[str, ...] | None) -> str | None:
        if keys is None:
            return None
        return json.dumps([apps.find_type(snapshot, app_id, "parent", key) for key in keys])

    return _KnownRule(*of, ids(of[2].on), ids(of[2].to))


def rules_by_type(snapshot: ReadTransaction, app_id: int) -> dict[int, dict[str, Any]]:
    """Return the rules of an app as JSON values, by the ids of their types."""
    rows = snapshot.all(rule_statements(app_id).rules)
    return {type_id: json.loads(text) for type_id, _, _, text in rows}


class CheckedRows(NamedTuple):
    """Ids up to which rows of a kind, and parents, meet a rule."""

    rows: int = 0
    parents: int = 0


def check_existing(
    snapshot: ReadTransaction, apps: Apps, app_id: int, of: tuple[Kind, str], rule: object
) -> CheckedRows:
    """Check the committed rows of an app for a rule of a type, some at a time.

    Raises:
        RuleBroken: An object breaks the rule.
    """
    apps.must_exist(snapshot, app_id)
    kind = validation.check_kind(of[0])
    last = CheckedRows(
        int(snapshot.value(statements_of(app_id, kind).next_id)) - 1,
        int(snapshot.value(statements_of(app_id, "parent").next_id)) - 1,
    )
    type_id = apps.find_type(snapshot, app_id, kind, validation.check_text(of[1], "type_key"))
    if rule is not None and type_id is not None:
        parsed = parse_rule(kind, rule)
        keys = (*(parsed.on or ()), *(parsed.to or ()))
        if any(apps.find_type(snapshot, app_id, "parent", key) is None for key in keys):
            return CheckedRows()
        known = _known_rule(snapshot, apps, app_id, (type_id, of[1], parsed))
        rules = TypeRules(app_id, [(kind, known)])
        for first in range(1, last.rows + 1, CHECK_ROWS):
            rules.check(snapshot, kind, first, min(first + CHECK_ROWS - 1, last.rows))
        for first in range(1, last.parents + 1, CHECK_ROWS) if rules.has_required else ():
            rules.check_required(snapshot, first, min(first + CHECK_ROWS - 1, last.parents))
    return last


def put_rule(
    txn: Transaction,
    apps: Apps,
    app_id: int,
    of: tuple[Kind, str],
    rule: Mapping[str, Any] | None,
    *,
    checked: CheckedRows,
) -> None:
    """Set the rule of a type, given by kind and key, or remove it with None.

    Rows after the `checked` ones must meet it.

    Raises:
        InvalidInput: It is not a rule of this kind.
        NotFound: The app has no such type, or no type that the rule names.
        RuleBroken: An object breaks the rule.
    """
    apps.must_exist(txn, app_id)
    kind, type_key = validation.check_kind(of[0]), of[1]
    sql, type_id = rule_statements(app_id), _type_id(txn, apps, app_id, kind, type_key)
    if rule is None:
        txn.execute(sql.drop, (type_id,))
        return
    parsed = parse_rule(kind, rule)
    for key in (*(parsed.on or ()), *(parsed.to or ())):
        _type_id(txn, apps, app_id, "parent", key)
    txn.execute(sql.put, (type_id, msgspec.json.encode(parsed).decode()))
    known = _known_rule(txn, apps, app_id, (type_id, type_key, parsed))
    rules = TypeRules(app_id, [(kind, known)])
    rules.check(txn, kind, checked.rows + 1, _LAST_ID)
    rules.check_required(txn, checked.parents + 1, _LAST_ID)


def parse_rule(kind: Kind, rule: object) -> TypeRule:
    """Return a checked rule of a kind."""
    try:
        parsed = msgspec.convert(rule, TypeRule)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not a rule: {error}", hint=_HINT) from None
    fields = msgspec.to_builtins(parsed).keys()
    if fields - _FIELDS[kind]:
        raise InvalidInput(
            f"a rule of {kind} has no field {min(fields - _FIELDS[kind])!r}", hint=_HINT
        )
    for keys in (parsed.on, parsed.to):
        if keys == ():
            raise InvalidInput("a rule must name at least one type", hint=_HINT)
    for name in ("most", "most_in"):
        if (most := getattr(parsed, name)) is not None:
            validation.check_integer(most, name, least=1)
    if kind == "rating" and parsed.value == "blob":
        raise InvalidInput("a rating has no value of blob", hint=_HINT)
    if parsed.unique and parsed.value not in {"text", "number"}:
        raise InvalidInput('a unique type must have "value": "text" or "number"', hint=_HINT)
    return parsed


def _type_id(txn: Transaction, apps: Apps, app_id: int, kind: Kind, key: str) -> int:
    type_id = apps.find_type(txn, app_id, kind, validation.check_text(key, "type_key"))
    if type_id is None:
        raise NotFound(
            f"app {app_id} has no type {key!r} of {kind}",
            hint="Register it first: `fourfold app type`.",
        )
    return type_id


def _either(keys: tuple[str, ...]) -> str:
    return " or ".join(repr(key) for key in keys)


def _fill(text: str, **places: str) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text
