"""Checking a space: every commit against its digest, every derived row against the log.

What must hold is a list of rules, the same for `space.verify`, for `fourfold verify` and for the
job `verify` of the pipeline. A large space is checked in parts: rules, and ranges of the keys that
a rule goes by. The job spreads them over its workers; the other two check one after the other, each
in a read transaction of its own, because the write-ahead log of a space that is written meanwhile
cannot be shortened while an older state of it is being read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from fourfold import limits
from fourfold.kernel import load_queries
from fourfold.kernel.transaction import SQL
from fourfold.models.documents import side_tables
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.faults import WHOLE, Fault, Kind, Part, Rule, text
from fourfold.models.documents.history import History, View
from fourfold.models.documents.replaying import UNREADABLE, replays

_SQL: Final = load_queries("fourfold.models.documents", "verify_parts.sql")
_DIVIDED_BY_FACTS: Final = ("values", "facts")
"""The rules of a log of facts whose keys are spread like the hashes of the facts."""


def problems(view: View, history: History) -> list[str]:
    """Everything that is wrong, in sentences: in the log itself, and in what is derived from it."""
    return [str(fault) for fault in faults(view, history)]


def faults_by_parts(
    open_view: Callable[[], AbstractContextManager[View]], history: History, size_bytes: int
) -> Iterator[Fault]:
    """Yield everything that is wrong; a large space is checked part by part, each part in a view
    of its own.
    """
    count = -(-size_bytes // limits.VERIFY_SLICE_BYTES)
    with open_view() as view:
        if count <= 1:
            yield from faults(view, history)
            return
        divided = list(parts(view, rules(history), count))
    for names, part in divided:
        with open_view() as view:
            yield from faults(view, history, names, part)


def parts(
    view: View, checked: Iterable[Rule], count: int
) -> Iterator[tuple[tuple[str, ...], Part | None]]:
    """Divide the rules into about `count` parts for each kind of key: names of rules, and the
    range of keys to apply them to.
    """
    by: dict[Kind, list[str]] = {}
    for rule in checked:
        by.setdefault(rule.by, []).append(rule.name)
    for name in by.pop("", []):
        yield (name,), None
    by_facts = tuple(name for name in by.get("hash", ()) if name in _DIVIDED_BY_FACTS)
    others = tuple(name for name in by.pop("hash", ()) if name not in _DIVIDED_BY_FACTS)
    if others:
        yield others, WHOLE["hash"]
    if by_facts:
        for part in _between("hash", _bounds(view, _SQL.hash_count, _SQL.hashes, count)):
            yield by_facts, part
    for part in _between("seq", view.all(_SQL.seqs, (count,))):
        yield tuple(by["seq"]), part
    for part in _between("entity", _bounds(view, _SQL.entity_count, _SQL.entities, count)):
        yield tuple(by["entity"]), part


def _bounds(view: View, counting: str, keys: str, count: int) -> list[tuple[Any, ...]]:
    """Keys that leave about as many rows between them: one fewer than parts, or none."""
    width = -(-int(view.value(counting)) // count)
    return view.all(keys, (width,))[: count - 1] if width else []


def _between(kind: Kind, bounds: Iterable[tuple[Any, ...]]) -> Iterator[Part]:
    """Yield the parts between keys, from the least to the greatest that there can be."""
    low, highest = WHOLE[kind]
    for bound in bounds:
        if bound > low:
            yield Part(low, bound)
            low = bound
    yield Part(low, highest)


def faults(
    view: View, history: History, only: Collection[str] = (), part: Part | None = None
) -> Iterator[Fault]:
    """Everything that is wrong, row by row. With `only` by the rules of these names; they are then
    applied to `part`, if it is given.
    """
    for rule in rules(history):
        if only and rule.name not in only:
            continue
        try:
            for found in rule.check(view, WHOLE[rule.by] if part is None else part):
                yield found if isinstance(found, Fault) else Fault(found, rule.name)
        except UNREADABLE as error:
            if getattr(error, "retryable", False):
                # Somebody was in the way, which says nothing about the space.
                raise
            yield Fault(f"the {rule.name} cannot be checked to the end: {error}", rule.name)


def rules(history: History) -> tuple[Rule, ...]:
    """All that must hold in a space."""
    return (*history.rules, *_RULES, *side_tables.RULES)


def _dense(view: View, part: Part) -> Iterator[str]:
    """Seqs are given out one after the other; only a restore may have left some out."""
    before = None
    floor = view.value(view.sql.verify_floor) or 0
    for (seq,) in view.rows(view.sql.verify_seqs, part.bounds):
        if before is None:
            row = view.one(view.sql.commit_before, (seq - 1,))
            before = 0 if row is None else row[0]
        if seq != before + 1 and seq > floor + 1:
            yield Fault(
                f"commit {before + 1}: is missing; after {before} comes {seq}",
                "commit",
                {"seq": before + 1},
                expected=before + 1,
                found=seq,
            )
        before = seq


def _kinds_of_values(view: View, part: Part) -> Iterator[str]:
    """Every column holds the kind of value that it is declared to: a text that became bytes reads
    the same, and is found by no key.
    """
    del part
    tables: dict[str, list[tuple[str, str, bool, int]]] = {}
    for table, *column in view.rows(SQL.table_columns):
        tables.setdefault(table, []).append((column[0], column[1], bool(column[2]), column[3]))
    for table, columns in tables.items():
        key = [name for name, *_, place in sorted(columns, key=lambda each: each[3]) if place]
        conditions = [
            f'typeof("{name}") NOT IN ({_KINDS[declared] if needed else _OR_NULL[declared]})'
            for name, declared, needed, _ in columns
            if declared in _KINDS
        ]
        sql = SQL.rows_of_other_types.format(
            table=table,
            key=", ".join(f'CAST("{name}" AS BLOB)' for name in key),
            conditions=" OR ".join(conditions) or "0",
        )
        for row in view.rows(sql):
            named = dict(zip(key, row, strict=True))
            shown = ", ".join(repr(text(each)) for each in row)
            sentence = f"{table} {shown}: a column holds another kind of value than it should"
            yield Fault(sentence, table, named)


_KINDS = {"TEXT": "'text'", "INTEGER": "'integer'", "BLOB": "'blob'"}
_OR_NULL = {declared: f"{kind}, 'null'" for declared, kind in _KINDS.items()}


def _branches(view: View, part: Part) -> Iterator[str]:
    """The branches are what the commits that made and ended them say."""
    del part
    expected: dict[str, list[Any]] = {"": [None, None, 0, 0, "active"]}
    for seq, name, original in view.rows(view.sql.verify_lines):
        branch = text(name)
        asked = {} if original is None else decode(original)
        cmd = asked.get("cmd")
        if cmd == "branch/create":
            expected[asked["name"]] = [asked["parent"], asked["at"], seq, seq, "active"]
        elif cmd == "branch/delete":
            expected[asked["name"]][4] = "deleted"
        elif branch in expected:
            expected[branch][3] = seq
        else:
            sentence = f"commit {seq}: its branch {branch!r} was never made"
            yield Fault(sentence, "commit", {"seq": seq}, found=branch)
    known = set(expected)
    for name, parent, *rest, status in view.rows(view.sql.verify_branches):
        branch, found = text(name), [text(parent), *rest, text(status)]
        wanted = expected.pop(branch, None)
        key = {"name": branch}
        if found != wanted:
            sentence = f"branch {branch!r} is not what the log says"
            yield Fault(sentence, "branch", key, expected=wanted, found=found)
        if found[0] is not None and found[0] not in known:
            sentence = f"branch {branch!r}: was forked from {found[0]!r}, which is not there"
            yield Fault(sentence, "branch", key, found=found[0])
        elif type(found[1]) is int and found[1] > found[2]:
            sentence = f"branch {branch!r}: was forked at seq {found[1]}, before that was there"
            yield Fault(sentence, "branch", key, found=found[1])
    for branch, wanted in expected.items():
        sentence = f"branch {branch!r} is missing"
        yield Fault(sentence, "branch", {"name": branch}, expected=wanted)


def _collections(view: View, part: Part) -> Iterator[str]:
    """What was taken is on record, and what is left can be read without it."""
    del part
    for (seq,) in view.rows(view.sql.verify_seals):
        sentence = f"commit {seq} is sealed, but is not there or not below the horizon"
        yield Fault(sentence, "gc_seal", {"seq": seq})
    for named, seq in view.rows(view.sql.verify_points):
        sentence = f"{text(named)!r} at seq {seq} is a kept point, but was never one"
        yield Fault(sentence, "gc_point", {"branch": named, "seq": seq})
    for named, seq in view.rows(view.sql.verify_forks):
        sentence = f"{text(named)!r} at seq {seq} is a fork, but not a kept point"
        yield Fault(sentence, "gc_point", {"branch": named, "seq": seq})
    for row in view.rows(view.sql.verify_gaps):
        named, of, seq, op_index, lost, least, op, based, sealed = row
        where = f"{text(of)!r} on {text(named)!r} at seq {seq}"
        key = {"branch": named, "id": of, "seq": seq, "op_index": op_index}
        if op is None or seq > least or lost > seq or not sealed:
            sentence = f"what was taken before {where} cannot have been there"
            yield Fault(sentence, "gc_gap", key, expected=f"before {least}", found=lost)
        elif text(op) == "patch" and not based:
            yield Fault(f"{where} has lost what it builds on", "gc_base", key)
    for named, of, seq in view.rows(view.sql.verify_bases):
        sentence = f"snapshot of {text(of)!r} on {text(named)!r} at seq {seq} is missing"
        yield Fault(sentence, "snapshot", {"branch": named, "id": of, "seq": seq})


_RULES = (
    Rule("seqs", "seq", _dense),
    Rule("branches", "", _branches),
    Rule("replay", "entity", replays),
    Rule("collections", "", _collections),
    Rule("kinds of values", "", _kinds_of_values),
)
