"""Verification of a space: every commit against its digest, every derived row against the log.

What must hold is a list of rules, the same for `space.verify`, for `fourfold verify` and for the
job `verify` of the pipeline. A large space is checked in parts: rules, and ranges of the keys that
a rule goes by. The job spreads them over its workers; the other two check one after the other, each
in a read transaction of its own, because the write-ahead log of a space that is written meanwhile
cannot be shortened while an older state of it is being read.

Checking that the log can be replayed, and that every snapshot is what replay gives there.

The rows of an entity are folded once, in order, from its first one on, and compared with each
snapshot on the way. So the cost is that of the log, however many snapshots there are, and one
document is in memory at a time.

Checking what lies beside the log of a space: its blobs, its reserved tables, and
the times of its branches.

The bytes and the size of a blob follow from its hash. Its content type and its time are remarks
that nothing vouches for, so only their form is checked.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.content import content_id
from fourfold.errors import FourfoldError
from fourfold.kernel import load_queries
from fourfold.kernel.transaction import SQL
from fourfold.models.documents import fold, reader
from fourfold.models.documents.ancestry import Link, chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import History, HistoryReader, Row
from fourfold.models.documents.problems import WHOLE, KeyRange, Kind, Rule, make_problem, text
from fourfold.models.documents.records import State
from fourfold.models.problem import Problem

VERIFY_SLICE_BYTES: Final = 4 * limits.MIB
"""Approximate bytes that are verified in one read transaction."""
VERIFY_WAITING_ROWS: Final = 256
VERIFY_WAITING_BYTES: Final = 4 * limits.MIB
"""Rows, and their bytes, of one entity that verification folds at once."""

UNREADABLE: Final = (
    FourfoldError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
"""What damaged rows raise when they are read. A text that is no text is a ValueError."""
_AFTER_ALL: Final = 2**31
"""The place of a snapshot among the operations of its seq: it holds all of them."""


class _Lost:
    """The state after a row that cannot be folded: unknown until the next whole document."""


_LOST: Final = _Lost()
_State = State | None | _Lost


class _Step(NamedTuple):
    seq: int
    op: str
    data: bytes | None


def replays(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check every entity of a part, from its first row to its last."""
    parents: dict[str, list[Link]] = {}
    log = view.rows(view.sql.verify_operations, part.bounds)
    wholes = (
        (branch, entity, seq, _AFTER_ALL, value, digest)
        for branch, entity, seq, value, digest in view.rows(view.sql.verify_snapshots, part.bounds)
    )
    merged = heapq.merge(log, wholes, key=lambda row: row[:4])
    for (branch, entity), rows in groupby(merged, key=lambda row: row[:2]):
        named, of = text(branch), text(entity)
        if named not in parents:
            # The caps of the ancestors do not depend on where in the branch one looks.
            try:
                parents[named] = chain(view, named, limits.INTEGER_MAX)[1:]
            except UNREADABLE as error:
                yield make_problem(
                    f"branch {named!r}: what it was forked from cannot be found: {error}",
                    "branch",
                    {"name": named},
                )
                parents[named] = []
        yield from _Entity(view, parents[named], named, of).check(rows)


class _Entity:
    """One entity of one branch."""

    def __init__(self, view: HistoryReader, parents: list[Link], branch: str, entity: str) -> None:
        self._view = view
        self._parents = parents
        self._branch = branch
        self._entity = entity
        self._started = False
        self._state: _State = None
        self._waiting: list[_Step] = []
        self._bytes = 0

    def check(self, rows: Iterable[Row]) -> Iterator[Problem]:
        for _, _, seq, place, *rest in rows:
            if place == _AFTER_ALL:
                value, digest = rest
                yield from self._whole(seq, value, digest)
                continue
            op, data = rest
            self._waiting.append(_Step(seq, text(op), data))
            self._bytes += len(data or b"")
            full = len(self._waiting) >= VERIFY_WAITING_ROWS or self._bytes >= VERIFY_WAITING_BYTES
            # The rows of the last seq wait on: a snapshot that the log begins with may follow.
            if full and self._waiting[0].seq < seq:
                older = [step for step in self._waiting if step.seq < seq]
                yield from self._fold(older)
                self._waiting = self._waiting[len(older) :]
                self._bytes = sum(len(step.data or b"") for step in self._waiting)
        yield from self._fold(self._waiting)

    def _whole(self, seq: int, value: bytes | None, digest: bytes | None) -> Iterator[Problem]:
        """Check a snapshot: compare a derived one; start from one at the beginning of the log."""
        where = f"snapshot of {self._entity!r} on {self._branch!r} at seq {seq}"
        key = {"branch": self._branch, "id": self._entity, "seq": seq}
        if digest is not None:
            yield from self._fold([step for step in self._waiting if step.seq < seq])
            self._waiting = []
            self._started = True
            digest_found = content_id(value or b"")
            if text(digest) != digest_found:
                # It is unknown whether the document or the note of its digest is damaged.
                sentence = f"{where} is not what a collection left there"
                yield make_problem(sentence, "snapshot", key, expected=digest, found=digest_found)
                yield make_problem(f"the digest of the {where} is not its own", "gc_base", key)
            self._state = _whole_state(value, seq)
            return
        yield from self._fold(self._waiting)
        self._waiting = []
        state = self._state
        if isinstance(state, _Lost):
            yield make_problem(
                f"{where} cannot be checked: the log before it is damaged", "snapshot", key
            )
            return
        expected = None
        if state is not None and state.seq == seq and state.document is not None:
            expected = trusted(state.document)
        if expected is None or expected != text(value):
            yield make_problem(
                f"{where} is not what the log says",
                "snapshot",
                key,
                expected="none at this seq" if expected is None else expected,
                found=value,
            )

    def _fold(self, steps: list[_Step]) -> Iterator[Problem]:
        if not steps:
            return
        if not self._started:
            self._started = True
            if steps[0].op == "patch":
                yield from self._inherit(steps[0].seq)
        try:
            self._state = _folded(self._state, steps)
        except UNREADABLE:
            yield from self._one_by_one(steps)

    def _one_by_one(self, steps: list[_Step]) -> Iterator[Problem]:
        """Fold the rows one by one, to find those that cannot be folded."""
        for step in steps:
            try:
                self._state = _folded(self._state, [step])
            except UNREADABLE as error:
                self._state = _LOST
                yield make_problem(
                    f"revision of {self._entity!r} on {self._branch!r} at seq {step.seq} "
                    f"cannot be replayed: {error}",
                    "revision",
                    {"branch": self._branch, "id": self._entity, "seq": step.seq},
                    found=step.data,
                )

    def _inherit(self, seq: int) -> Iterator[Problem]:
        """Check what the branch showed before its own first row."""
        try:
            entry = reader.entry(self._view, self._parents, self._entity, derived=False)
        except UNREADABLE as error:
            self._state = _LOST
            yield make_problem(
                f"revision of {self._entity!r} on {self._branch!r} at seq {seq}: what it builds on "
                f"cannot be read: {error}",
                "revision",
                {"branch": self._branch, "id": self._entity, "seq": seq},
            )
            return
        self._state = None if entry is None else State(entry.document, entry.op, entry.seq)


def _folded(state: _State, steps: list[_Step]) -> _State:
    rows: list[_Step] = steps
    if isinstance(state, _Lost):
        first = next((at for at, step in enumerate(steps) if step.op != "patch"), None)
        if first is None:
            return state
        state, rows = None, steps[first:]
    return fold.fold(state, ((step.seq, step.op, _read(step.data)) for step in rows))


def _read(data: bytes | None) -> Any:
    return None if data is None else decode(data)


def _whole_state(value: bytes | None, seq: int) -> _State:
    try:
        document = _read(value)
    except UNREADABLE:
        return _LOST
    return State(document, "patch", seq) if isinstance(document, dict) else _LOST


_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _reserved(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    del part
    for table, ref in view.rows(view.sql.verify_reserved):
        sentence = f"{table} {_shown(ref)}: this table is reserved, and nothing writes it"
        yield make_problem(sentence, table, {"ref": ref})


def _births(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    del part
    for name, created_at, expected in view.rows(view.sql.verify_births):
        if created_at != expected:
            yield make_problem(
                f"branch {_shown(name)}: was not made when its row says",
                "branch",
                {"name": name},
                expected=expected,
                found=created_at,
            )


def _blobs(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for row in view.rows(view.sql.verify_blobs, part.bounds):
        named, data, kind, size, content_type, created_at = row
        digits = hashlib.sha256(data).hexdigest()
        wrong, expected, found = None, None, None
        if digits.encode() != named or kind != "blob":
            wrong, expected, found = "its bytes are not what its hash says", named, digits
        elif size != len(data):
            wrong = f"has {len(data)} bytes, and its row says {size}"
            expected, found = str(len(data)), str(size)
        elif not _is_text(content_type) or not _MOMENT.fullmatch(created_at):
            wrong, found = "its content type or its time cannot be read", created_at
        if wrong is not None:
            yield make_problem(
                f"blob {_shown(named)}: {wrong}",
                "blob_store",
                {"hash": named},
                expected=expected,
                found=found,
            )


def _metadata(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for branch, entity in view.rows(view.sql.verify_metadata, part.bounds):
        yield make_problem(
            f"blob {_shown(entity.rpartition(b':')[2])}: is missing, and {_shown(entity)} "
            f"on {_shown(branch)} says what it is",
            "blob_store",
            {"hash": entity.rpartition(b":")[2]},
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or bool(value.decode().isprintable())
    except UnicodeDecodeError:
        return False


def _shown(name: Any) -> str:
    """Return a name from the file for a message, even if it is damaged."""
    return repr(name.decode(errors="backslashreplace")) if isinstance(name, bytes) else repr(name)


RULES = (
    Rule("blobs", "hash", _blobs),
    Rule("metadata of blobs", "entity", _metadata),
    Rule("reserved tables", "", _reserved),
    Rule("births of branches", "", _births),
)


_SQL: Final = load_queries("fourfold.models.documents", "verify_parts.sql")
_DIVIDED_BY_FACTS: Final = ("values", "facts")
"""The rules of a log of facts whose keys are spread like the hashes of the facts."""


def iter_problems_by_parts(
    open_view: Callable[[], AbstractContextManager[HistoryReader]],
    history: History,
    size_bytes: int,
) -> Iterator[Problem]:
    """Yield the problems of a space. A large one is read in parts, each in its own transaction."""
    count = -(-size_bytes // VERIFY_SLICE_BYTES)
    with open_view() as view:
        if count <= 1:
            yield from iter_problems(view, history)
            return
        divided = list(parts(view, rules(history), count))
    for names, part in divided:
        with open_view() as view:
            yield from iter_problems(view, history, names, part)


def parts(
    view: HistoryReader, checked: Iterable[Rule], count: int
) -> Iterator[tuple[tuple[str, ...], KeyRange | None]]:
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
    newest = view.value(_SQL.newest)
    # Commits that are written meanwhile are not checked: the last part would never end. A seq that
    # is no number is damaged, and sorts after all numbers.
    highest = (newest + 1,) if isinstance(newest, int) else WHOLE["seq"].high
    for part in _between("seq", view.all(_SQL.seqs, (count,)), highest):
        yield tuple(by["seq"]), part
    for part in _between("entity", _bounds(view, _SQL.entity_count, _SQL.entities, count)):
        yield tuple(by["entity"]), part


def _bounds(view: HistoryReader, counting: str, keys: str, count: int) -> list[tuple[Any, ...]]:
    """Keys that leave about as many rows between them: one fewer than parts, or none."""
    width = -(-int(view.value(counting)) // count)
    return view.all(keys, (width,))[: count - 1] if width else []


def _between(
    kind: Kind, bounds: Iterable[tuple[Any, ...]], highest: tuple[Any, ...] | None = None
) -> Iterator[KeyRange]:
    """Yield the parts between keys, from the least to `highest` or the greatest there can be."""
    low, greatest = WHOLE[kind]
    highest = greatest if highest is None else highest
    for bound in bounds:
        if bound > low:
            yield KeyRange(low, bound)
            low = bound
    yield KeyRange(low, highest)


def iter_problems(
    view: HistoryReader, history: History, only: Collection[str] = (), part: KeyRange | None = None
) -> Iterator[Problem]:
    """Yield the problems of a space; with `only`, by these rules, applied to `part`."""
    for rule in rules(history):
        if only and rule.name not in only:
            continue
        try:
            yield from rule.check(view, WHOLE[rule.by] if part is None else part)
        except UNREADABLE as error:
            if getattr(error, "retryable", False):
                # Another process was in the way, which says nothing about the space.
                raise
            yield make_problem(f"the {rule.name} cannot be checked to the end: {error}", rule.name)


def rules(history: History) -> tuple[Rule, ...]:
    """Return all rules of a space."""
    return (*history.rules, *_RULES, *RULES)


def _dense(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Seqs are given out one after the other; only a restore may have left some out."""
    before = None
    floor = view.value(view.sql.verify_floor) or 0
    for (seq,) in view.rows(view.sql.verify_seqs, part.bounds):
        if before is None:
            row = view.one(view.sql.commit_before, (seq - 1,))
            before = 0 if row is None else row[0]
        if seq != before + 1 and seq > floor + 1:
            yield make_problem(
                f"commit {before + 1}: is missing; after {before} comes {seq}",
                "commit",
                {"seq": before + 1},
                expected=before + 1,
                found=seq,
            )
        before = seq


def _kinds_of_values(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check that every column has a value of its declared type.

    A text that became bytes reads the same, but no key finds it.
    """
    del part
    tables: dict[str, list[tuple[str, str, bool, int]]] = {}
    for table, *column in view.rows(SQL.table_columns):
        tables.setdefault(table, []).append((column[0], column[1], bool(column[2]), column[3]))
    for table, columns in tables.items():
        key = [name for name, *_, place in sorted(columns, key=lambda value: value[3]) if place]
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
            shown = ", ".join(repr(text(value)) for value in row)
            sentence = f"{table} {shown}: a column holds another kind of value than it should"
            yield make_problem(sentence, table, named)


_KINDS = {"TEXT": "'text'", "INTEGER": "'integer'", "BLOB": "'blob'"}
_OR_NULL = {declared: f"{kind}, 'null'" for declared, kind in _KINDS.items()}


def _branches(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check that the branches match the commits that created and ended them."""
    del part
    expected: dict[str, list[Any]] = {"": [None, None, 0, 0, "active"]}
    for seq, name, original in view.rows(view.sql.verify_lines):
        branch = text(name)
        request = {} if original is None else decode(original)
        cmd = request.get("cmd")
        if cmd == "branch/create":
            expected[request["name"]] = [request["parent"], request["at"], seq, seq, "active"]
        elif cmd == "branch/delete":
            expected[request["name"]][4] = "deleted"
        elif branch in expected:
            expected[branch][3] = seq
        else:
            sentence = f"commit {seq}: its branch {branch!r} was never made"
            yield make_problem(sentence, "commit", {"seq": seq}, found=branch)
    names = set(expected)
    for name, parent, *rest, status in view.rows(view.sql.verify_branches):
        branch, fields = text(name), [text(parent), *rest, text(status)]
        expected_fields = expected.pop(branch, None)
        key = {"name": branch}
        if fields != expected_fields:
            sentence = f"branch {branch!r} is not what the log says"
            yield make_problem(sentence, "branch", key, expected=expected_fields, found=fields)
        if fields[0] is not None and fields[0] not in names:
            sentence = f"branch {branch!r}: was forked from {fields[0]!r}, which is not there"
            yield make_problem(sentence, "branch", key, found=fields[0])
        elif type(fields[1]) is int and fields[1] > fields[2]:
            sentence = f"branch {branch!r}: was forked at seq {fields[1]}, before that was there"
            yield make_problem(sentence, "branch", key, found=fields[1])
    for branch, expected_fields in expected.items():
        sentence = f"branch {branch!r} is missing"
        yield make_problem(sentence, "branch", {"name": branch}, expected=expected_fields)


def _collections(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check that removed history is recorded, and that the rest is readable without it."""
    del part
    for (seq,) in view.rows(view.sql.verify_seals):
        sentence = f"commit {seq} is sealed, but is not there or not below the horizon"
        yield make_problem(sentence, "gc_seal", {"seq": seq})
    for named, seq in view.rows(view.sql.verify_points):
        sentence = f"{text(named)!r} at seq {seq} is a kept point, but was never one"
        yield make_problem(sentence, "gc_point", {"branch": named, "seq": seq})
    for named, seq in view.rows(view.sql.verify_forks):
        sentence = f"{text(named)!r} at seq {seq} is a fork, but not a kept point"
        yield make_problem(sentence, "gc_point", {"branch": named, "seq": seq})
    for row in view.rows(view.sql.verify_gaps):
        named, of, seq, op_index, lost, least, op, based, sealed = row
        where = f"{text(of)!r} on {text(named)!r} at seq {seq}"
        key = {"branch": named, "id": of, "seq": seq, "op_index": op_index}
        if op is None or seq > least or lost > seq or not sealed:
            sentence = f"what was taken before {where} cannot have been there"
            yield make_problem(sentence, "gc_gap", key, expected=f"before {least}", found=lost)
        elif text(op) == "patch" and not based:
            yield make_problem(f"{where} has lost what it builds on", "gc_base", key)
    for named, of, seq in view.rows(view.sql.verify_bases):
        sentence = f"snapshot of {text(of)!r} on {text(named)!r} at seq {seq} is missing"
        yield make_problem(sentence, "snapshot", {"branch": named, "id": of, "seq": seq})


_RULES = (
    Rule("seqs", "seq", _dense),
    Rule("branches", "", _branches),
    Rule("replay", "entity", replays),
    Rule("collections", "", _collections),
    Rule("kinds of values", "", _kinds_of_values),
)
