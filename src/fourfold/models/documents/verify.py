"""Verification of a space: every commit against its digest, every derived row against the log.

What must hold is a list of rules, the same for `space.verify`, for `fourfold verify` and for the
job `verify` of the pipeline. The job divides a large space into parts for its workers: rules, and
ranges of the keys that a rule goes by. The other two check one slice of the keys after the other,
each in a short read transaction, and pause only between two of them: the write-ahead log of a space
that is written meanwhile cannot be restarted while an older state of it is being read.

Replay folds the rows of an entity once, in order, from its first one on, and compares each snapshot
on the way. So the cost is that of the log, however many snapshots there are, and one document is in
memory at a time. An entity with a long history is read in several transactions.

The bytes and the size of a blob follow from its hash. Its content type and its time are stored
without a digest, so only their form is checked.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.content import content_id
from fourfold.errors import FourfoldError
from fourfold.kernel import load_queries
from fourfold.models.documents import column_types, fold, reader
from fourfold.models.documents.ancestry import BranchLink, chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import History, HistoryReader, Row
from fourfold.models.documents.indexes import verify as index_rules
from fourfold.models.documents.problems import (
    BEFORE_ALL,
    WHOLE,
    KeyRange,
    Kind,
    LogCheck,
    LogRange,
    OpenView,
    Rule,
    make_problem,
    rule_in_order,
    text,
)
from fourfold.models.documents.records import State
from fourfold.models.problem import Problem

VERIFY_SLICE_BYTES: Final = 64 * limits.KIB
"""Approximate bytes that are verified in one read transaction."""
VERIFY_ROW_BYTES: Final = 200
"""Cost of a row in addition to its data, in bytes that are verified in the same time."""
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
"""Errors that reading damaged rows raises; invalid UTF-8 is a ValueError."""
_AFTER_ALL: Final = 2**31
"""The place of a snapshot among the operations of its seq: it holds all of them."""


class _MissingState:
    """The state after a row that cannot be folded: unknown until the next whole document."""


_MISSING: Final = _MissingState()
_State = State | None | _MissingState


class _Step(NamedTuple):
    seq: int
    op: str
    data: bytes | None


class _Replay:
    """The replay of one entity after the other, over one or several read transactions.

    What gc removes between two of them is removed with everything that was before it, and the
    snapshot that is left in its place is where the fold starts again.
    """

    def __init__(self) -> None:
        self._parents: dict[str, list[BranchLink]] = {}
        self._key: tuple[bytes, bytes] | None = None
        self._entity: _Entity | None = None

    def rows(self, view: HistoryReader, part: LogRange) -> Iterator[Row]:
        """Yield operations and snapshots in the order of replay.

        A row has a branch, an entity, a seq and a place; then an operation has its kind and data, a
        snapshot its digest and value.
        """
        branch, entity, seq, place = part.after
        least = (branch, entity, seq + (place == _AFTER_ALL))
        log = view.rows(view.sql.verify_operations, part.bounds)
        wholes = (
            (branch, entity, seq, _AFTER_ALL, digest, value)
            for branch, entity, seq, value, digest in view.rows(
                view.sql.verify_snapshots, (*least, *part.high, *part.later)
            )
        )
        return heapq.merge(log, wholes, key=lambda row: row[:4])

    def add(self, view: HistoryReader, row: Row) -> Iterator[Problem]:
        """Check the next row; the rows of an entity follow each other."""
        if self._entity is None or self._key != row[:2]:
            yield from self.finish(view)
            self._key = row[:2]
            branch, entity = text(row[0]), text(row[1])
            if branch not in self._parents:
                yield from self._find_parents(view, branch)
            self._entity = _Entity(self._parents[branch], branch, entity)
        yield from self._entity.add(view, row)

    def finish(self, view: HistoryReader) -> Iterator[Problem]:
        """Check what is left of the last entity."""
        if self._entity is not None:
            yield from self._entity.finish(view)
        self._entity = None

    def _find_parents(self, view: HistoryReader, branch: str) -> Iterator[Problem]:
        try:
            # The caps of the ancestors do not depend on where in the branch one looks.
            self._parents[branch] = chain(view, branch, limits.INTEGER_MAX)[1:]
        except UNREADABLE as error:
            yield make_problem(
                f"branch {branch!r}: what it was forked from cannot be found: {error}",
                "branch",
                {"name": branch},
            )
            self._parents[branch] = []


class _Entity:
    """One entity of one branch."""

    def __init__(self, parents: list[BranchLink], branch: str, entity: str) -> None:
        self._parents = parents
        self._branch = branch
        self._entity = entity
        self._started = False
        self._state: _State = None
        self._waiting: list[_Step] = []
        self._bytes = 0

    def add(self, view: HistoryReader, row: Row) -> Iterator[Problem]:
        """Check the next row."""
        _, _, seq, place, *rest = row
        if place == _AFTER_ALL:
            digest, value = rest
            yield from self._whole(view, seq, value, digest)
            return
        op, data = rest
        self._waiting.append(_Step(seq, text(op), data))
        self._bytes += len(data or b"")
        full = len(self._waiting) >= VERIFY_WAITING_ROWS or self._bytes >= VERIFY_WAITING_BYTES
        # The rows of the last seq wait on: a snapshot that the log begins with may follow.
        if full and self._waiting[0].seq < seq:
            older = [step for step in self._waiting if step.seq < seq]
            yield from self._fold(view, older)
            self._waiting = self._waiting[len(older) :]
            self._bytes = sum(len(step.data or b"") for step in self._waiting)

    def finish(self, view: HistoryReader) -> Iterator[Problem]:
        """Check what waits, after the last row."""
        yield from self._fold(view, self._waiting)

    def _whole(
        self, view: HistoryReader, seq: int, value: bytes | None, digest: bytes | None
    ) -> Iterator[Problem]:
        """Check a snapshot: compare a derived one; start from one at the beginning of the log."""
        where = f"snapshot of {self._entity!r} on {self._branch!r} at seq {seq}"
        key = {"branch": self._branch, "id": self._entity, "seq": seq}
        if digest is not None:
            yield from self._fold(view, [step for step in self._waiting if step.seq < seq])
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
        yield from self._fold(view, self._waiting)
        self._waiting = []
        state = self._state
        if isinstance(state, _MissingState):
            yield make_problem(
                f"{where} cannot be checked: the log before it is damaged", "snapshot", key
            )
            return
        expected = None
        if state is not None and state.seq == seq and state.document is not None:
            expected = trusted(state.document)
        if expected is None or expected != text(value):
            yield make_problem(
                f"{where} does not match the log",
                "snapshot",
                key,
                expected="none at this seq" if expected is None else expected,
                found=value,
            )

    def _fold(self, view: HistoryReader, steps: list[_Step]) -> Iterator[Problem]:
        if not steps:
            return
        if not self._started:
            self._started = True
            if steps[0].op == "patch":
                yield from self._inherit(view, steps[0].seq)
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
                self._state = _MISSING
                yield make_problem(
                    f"revision of {self._entity!r} on {self._branch!r} at seq {step.seq} "
                    f"cannot be replayed: {error}",
                    "revision",
                    {"branch": self._branch, "id": self._entity, "seq": step.seq},
                    found=step.data,
                )

    def _inherit(self, view: HistoryReader, seq: int) -> Iterator[Problem]:
        """Check what the branch showed before its own first row."""
        try:
            entry = reader.entry(view, self._parents, self._entity, derived=False)
        except UNREADABLE as error:
            self._state = _MISSING
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
    if isinstance(state, _MissingState):
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
        return _MISSING
    return State(document, "patch", seq) if isinstance(document, dict) else _MISSING


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
                f"branch {_shown(name)}: its row has another time of creation",
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
            wrong, expected, found = "its bytes do not match its hash", named, digits
        elif size != len(data):
            wrong = f"has {len(data)} bytes, its row has {size}"
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
            f"blob {_shown(entity.rpartition(b':')[2])}: is missing, but {_shown(entity)} "
            f"on {_shown(branch)} describes it",
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
_BRANCHES: Final = "branches"
"""The rule that needs all commits in order, and so is divided by itself."""
_KINDS: Final = "kinds of values"
"""The rule that reads one table after the other."""
_SIZES: Final = {
    "seq": _SQL.commit_sizes,
    "entity": _SQL.entity_sizes,
    "blobs": _SQL.blob_sizes,
    "values": _SQL.value_sizes,
    "facts": _SQL.fact_sizes,
}
"""Queries for the size of each key, by the kind of key or, if that is a hash, by the rule."""
_TYPE_BYTES: Final = 25
"""Cost of checking the types of a row, in bytes that are verified in the same time."""
_DIVIDED_BY_FACTS: Final = ("values", "facts")
"""The rules of a log of facts whose keys are spread like the hashes of the facts."""


def iter_problems_in_slices(
    open_view: OpenView, open_long_view: OpenView, history: History, size_bytes: int
) -> Iterator[Problem]:
    """Yield the problems of a space. A large one is read in slices, each in its own transaction.

    Each transaction is short, and `open_view` may pause between two of them. Commits that are
    written meanwhile are not checked: the last slice would never come.

    Args:
        open_long_view: Opens a read transaction that may pause, for rules that need one state of
            all rows.
    """
    with open_view() as view:
        if size_bytes <= VERIFY_SLICE_BYTES:
            yield from iter_problems(view, history)
            return
        until = view.value(_SQL.newest)
    sliced: dict[str, list[Rule]] = {}
    for rule in rules(history):
        if rule.name == _BRANCHES:
            problems = _branches_in_slices(open_view)
        elif rule.name == _KINDS:
            problems = column_types.check_in_slices(open_view, VERIFY_SLICE_BYTES // _TYPE_BYTES)
        elif rule.in_order is not None:
            problems = _in_order(open_view, rule.in_order(), until)
        elif rule.by:
            sizes = _SIZES[rule.name if rule.by == "hash" else rule.by]
            sliced.setdefault(sizes, []).append(rule)
            continue
        elif rule.name == index_rules.NAME and _has_indexes(open_view):
            problems = _in_one_transaction(open_long_view, rule)
        else:
            problems = _in_one_transaction(open_view, rule)
        yield from _report_unreadable(rule.name, problems)
    for sizes, checked in sliced.items():
        yield from _in_slices(open_view, sizes, checked, until)


def _has_indexes(open_view: OpenView) -> bool:
    with open_view() as view:
        return index_rules.has_indexes(view)


def _in_one_transaction(open_view: OpenView, rule: Rule) -> Iterator[Problem]:
    with open_view() as view:
        yield from rule.check(view, WHOLE[rule.by])


def _in_slices(
    open_view: OpenView, sizes: str, checked: list[Rule], until: Any
) -> Iterator[Problem]:
    """Check rules that go by the same keys, in a read transaction for each slice of these."""
    low: tuple[Any, ...] | None
    low, high = WHOLE[checked[0].by]
    # A seq that is not a number is damaged, and sorts after all numbers.
    if checked[0].by == "seq" and type(until) is int:
        high = (until + 1,)
    while low is not None:
        with open_view() as view:
            bound = _find_bound(view, sizes, KeyRange(low, high))
            part = KeyRange(low, high if bound is None else bound)
            for rule in checked:
                yield from _report_unreadable(rule.name, rule.check(view, part))
        low = bound


def _in_order(open_view: OpenView, check: LogCheck, until: Any) -> Iterator[Problem]:
    """Check the log row by row, in a read transaction for every `VERIFY_SLICE_BYTES` of it.

    Commits after the seq `until` are not checked: an entity that is written all the time would
    never end.
    """
    low, high = WHOLE["entity"]
    after: tuple[Any, ...] | None = (*low, BEFORE_ALL, BEFORE_ALL)
    while after is not None:
        before, after, size = after, None, 0
        with open_view() as view:
            part = LogRange(before, high)
            newest = view.value(_SQL.newest)
            if type(until) is int and type(newest) is int and newest > until:
                part = LogRange(before, high, (until + 1, newest))
            for row in check.rows(view, part):
                yield from check.add(view, row)
                size += VERIFY_ROW_BYTES + len(row[-1] or b"")
                if size >= VERIFY_SLICE_BYTES and _is_position(row, before):
                    after = (row[0].decode(), row[1].decode(), *row[2:4])
                    break
            if after is None:
                yield from check.finish(view)


def _is_position(row: Row, before: tuple[Any, ...]) -> bool:
    """Return True if a check can continue after a row in another transaction.

    It cannot if the key of the row is damaged: a text that became bytes sorts after all others.
    """
    branch, entity, seq, place = row[:4]
    try:
        return type(seq) is int and (branch.decode(), entity.decode(), seq, place) > before
    except UnicodeDecodeError:
        return False


def _find_bound(view: HistoryReader, sizes: str, rest: KeyRange) -> tuple[Any, ...] | None:
    """Return the key after the first slice of a range of keys, or None if it is the last one."""
    size = 0
    try:
        for *columns, count, data in view.rows(sizes, rest.bounds):
            if size >= VERIFY_SLICE_BYTES:
                bound = _to_key(columns)
                if bound is not None and bound > rest.low:
                    return bound
            size += count * VERIFY_ROW_BYTES + data
    except UNREADABLE as error:
        if getattr(error, "retryable", False):
            raise
        # The rule meets the same damage and reports it.
    return None


def _to_key(columns: list[Any]) -> tuple[Any, ...] | None:
    """Return a key from its columns, or None if it is damaged: such a key has no fixed place."""
    try:
        key = tuple(value.decode() if isinstance(value, bytes) else value for value in columns)
    except UnicodeDecodeError:
        return None
    return key if isinstance(columns[0], bytes) or type(key[0]) is int else None


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
    # is not a number is damaged, and sorts after all numbers.
    highest = (newest + 1,) if isinstance(newest, int) else WHOLE["seq"].high
    for part in _between("seq", view.all(_SQL.seqs, (count,)), highest):
        yield tuple(by["seq"]), part
    for part in _between("entity", _bounds(view, _SQL.entity_count, _SQL.entities, count)):
        yield tuple(by["entity"]), part


def _bounds(view: HistoryReader, counting: str, keys: str, count: int) -> list[tuple[Any, ...]]:
    """Return keys that split the rows into parts of about equal size; none for one part."""
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
        yield from _report_unreadable(
            rule.name, rule.check(view, WHOLE[rule.by] if part is None else part)
        )


def _report_unreadable(name: str, problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield the problems of a rule; damage that stops it is one more."""
    try:
        yield from problems
    except UNREADABLE as error:
        if getattr(error, "retryable", False):
            # Another process was in the way, which says nothing about the space.
            raise
        yield make_problem(f"the {name} cannot be checked to the end: {error}", name)


def rules(history: History) -> tuple[Rule, ...]:
    """Return all rules of a space."""
    return (*history.rules, *_RULES, *RULES, *index_rules.RULES)


def _dense(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Yield the seqs that are missing; only a restore may have left some out."""
    before = None
    floor = view.value(view.sql.verify_floor) or 0
    for (seq,) in view.rows(view.sql.verify_seqs, part.bounds):
        if before is None:
            row = view.one(view.sql.commit_before, (seq - 1,))
            before = 0 if row is None else row[0]
        if seq != before + 1 and seq > floor + 1:
            yield make_problem(
                f"commit {before + 1} is missing: {seq} follows {before}",
                "commit",
                {"seq": before + 1},
                expected=before + 1,
                found=seq,
            )
        before = seq


class _Branches:
    """Branches as the log describes them, folded from its commits in order."""

    def __init__(self) -> None:
        self._expected: dict[str, list[Any]] = {"": [None, None, 0, 0, "active"]}

    def fold(self, view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
        """Fold the commits of the next part; yield those of branches that were never made."""
        expected = self._expected
        for seq, name, original in view.rows(view.sql.verify_lines, part.bounds):
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

    def compare(self, view: HistoryReader) -> Iterator[Problem]:
        """Compare the stored branches with the log, all of whose commits are folded."""
        expected = dict(self._expected)
        for name, parent, *rest, status in view.rows(view.sql.verify_branches):
            branch, fields = text(name), [text(parent), *rest, text(status)]
            expected_fields = expected.pop(branch, None)
            key = {"name": branch}
            if fields != expected_fields:
                sentence = f"branch {branch!r} does not match the log"
                yield make_problem(sentence, "branch", key, expected=expected_fields, found=fields)
            if fields[0] is not None and fields[0] not in self._expected:
                sentence = f"branch {branch!r}: was forked from {fields[0]!r}, which is not there"
                yield make_problem(sentence, "branch", key, found=fields[0])
            elif type(fields[1]) is int and fields[1] > fields[2]:
                sentence = (
                    f"branch {branch!r}: was forked at seq {fields[1]}, before that was there"
                )
                yield make_problem(sentence, "branch", key, found=fields[1])
        for branch, expected_fields in expected.items():
            sentence = f"branch {branch!r} is missing"
            yield make_problem(sentence, "branch", {"name": branch}, expected=expected_fields)


def _branches(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check that the branches match the commits that created and ended them."""
    del part
    branches = _Branches()
    yield from branches.fold(view, WHOLE["seq"])
    yield from branches.compare(view)


def _branches_in_slices(open_view: OpenView) -> Iterator[Problem]:
    """Check the branches like `_branches`, in a read transaction for each slice of the commits.

    The last one reads the commits up to the newest, and the branches as of the same time.
    """
    branches = _Branches()
    low: tuple[Any, ...] | None
    low, high = WHOLE["seq"]
    while low is not None:
        with open_view() as view:
            bound = _find_bound(view, _SIZES["seq"], KeyRange(low, high))
            yield from branches.fold(view, KeyRange(low, high if bound is None else bound))
            if bound is None:
                yield from branches.compare(view)
        low = bound


def _check_gc_records(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
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
    for named, of, seq in view.rows(view.sql.verify_bases):
        sentence = f"snapshot of {text(of)!r} on {text(named)!r} at seq {seq} is missing"
        yield make_problem(sentence, "snapshot", {"branch": named, "id": of, "seq": seq})


def _gaps(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check that the rows before which others were removed are readable without them."""
    for row in view.rows(view.sql.verify_gaps, part.bounds):
        named, of, seq, op_index, lost, least, op, based, sealed = row
        where = f"{text(of)!r} on {text(named)!r} at seq {seq}"
        key = {"branch": named, "id": of, "seq": seq, "op_index": op_index}
        if op is None or seq > least or lost > seq or not sealed:
            sentence = f"what was taken before {where} cannot have been there"
            yield make_problem(sentence, "gc_gap", key, expected=f"before {least}", found=lost)
        elif text(op) == "patch" and not based:
            yield make_problem(f"{where} has lost what it builds on", "gc_base", key)


_RULES = (
    Rule("seqs", "seq", _dense),
    Rule(_BRANCHES, "", _branches),
    rule_in_order("replay", _Replay),
    Rule("collections", "", _check_gc_records),
    Rule("gaps", "entity", _gaps),
    Rule(_KINDS, "", column_types.check),
)
