"""Verification of a log of facts: recompute every hash, and follow every chain.

    value         its text, as we would write it, has its hash
    fact          its hash follows from its type, entity, value and parent
    occurrence    it says a fact about its entity, and follows what its branch showed before
    commit        its hash follows from its row, its facts with their texts, and the commit before
    head          it is the newest occurrence of its entity

Each finding names the row. One wrong byte is usually found in several places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fourfold.content import Reference, refer
from fourfold.errors import ContentError, FourfoldError
from fourfold.models.documents.ancestry import chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.facts import identity
from fourfold.models.documents.gc.commit_digests import broken
from fourfold.models.documents.history import HistoryReader, Row
from fourfold.models.documents.problems import (
    KeyRange,
    LogRange,
    Rule,
    make_problem,
    rule_in_order,
    seal_broken,
    text,
)
from fourfold.models.problem import Problem

_UNREADABLE = (FourfoldError, ValueError, TypeError, AttributeError, RecursionError)
"""Errors that reading damaged text or references raises."""


def _rows(view: HistoryReader, sql: str, params: Row = ()) -> Iterator[Row]:
    """Yield rows with texts as bytes. Invalid text is shown, and equals nothing."""
    for row in view.rows(sql, params):
        yield tuple(map(text, row))


def _values(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for named, data in _rows(view, view.sql.verify_values, part.bounds):
        if named == identity.EMPTY_VALUE:
            continue
        name = _name_of(data)
        if name != named:
            yield make_problem(
                f"value {named}: its data does not match its hash",
                "value",
                {"hash": named},
                expected=named,
                found=name or data,
            )


def _empty(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    del part
    if not view.value(view.sql.verify_empty):
        yield make_problem(
            f"value {identity.EMPTY_VALUE}: is missing, or has data",
            "value",
            {"hash": identity.EMPTY_VALUE},
        )


def _spellings(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for row in _rows(view, view.sql.verify_spellings, part.bounds):
        branch, entity, seq, value_ref, spelling = row
        name = _name_of(spelling)
        if name != value_ref:
            yield make_problem(
                f"snapshot of {entity!r} on {branch!r} at seq {seq}: its text is not its value's",
                "snapshot",
                {"branch": branch, "id": entity, "seq": seq},
                expected=value_ref,
                found=name or spelling,
            )


def _name_of(spelling: object) -> str | None:
    """Return the hash of the value in this text; None for a text that Fourfold did not write."""
    try:
        value = decode(spelling)  # type: ignore[arg-type]
        return str(refer(value)) if trusted(value) == spelling else None
    except _UNREADABLE:
        return None


def _facts(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for row in _rows(view, view.sql.verify_facts, part.bounds):
        named, entity, value_ref, parent, fact_type, *first, said_on, said_at, commit = row
        name = None
        try:
            name = str(
                identity.fact_reference(
                    fact_type,
                    entity,
                    None if value_ref == identity.EMPTY_VALUE else Reference.parse(value_ref),
                    None if parent is None else Reference.parse(parent),
                )
            )
            same = name == named
            same &= (fact_type == "delete") == (value_ref == identity.EMPTY_VALUE)
        except _UNREADABLE:
            same = False
        if not same:
            yield make_problem(
                f"fact {named} about {entity!r}: its hash does not match its content",
                "fact",
                {"hash": named},
                expected=named,
                found=name,
            )
        if first != [said_on, said_at, commit]:
            yield make_problem(
                f"fact {named} about {entity!r}: its first occurrence is not where its row states",
                "fact",
                {"hash": named},
                expected=[said_on, said_at, commit],
                found=first,
            )


class _Occurrences:
    """The check of every entity of every branch, from its first fact on."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] | None = None
        self._before: str | None = None

    def rows(self, view: HistoryReader, part: LogRange) -> Iterator[Row]:
        """Yield the rows of a range."""
        return view.rows(view.sql.verify_occurrences, part.bounds)

    def add(self, view: HistoryReader, row: Row) -> Iterator[Problem]:
        """Check the next row."""
        branch, entity, seq, op_index, fact, fact_type, spelling, *stored = map(text, row)
        where = f"occurrence of {entity!r} on {branch!r} at seq {seq}, operation {op_index}"
        key = {"branch": branch, "id": entity, "seq": seq, "op_index": op_index}
        said_of, said_type, parent, value_ref, value_there, commit_branch, early, data = stored
        if self._last != (branch, entity):
            self._last = (branch, entity)
            try:
                self._before = _inherited(view, branch, entity, seq)
            except _UNREADABLE as error:
                sentence = f"{where}: what it follows cannot be found: {error}"
                yield make_problem(sentence, "occurrence", key)
                self._before = parent
        before, self._before = self._before, fact
        wrong: str | None = None
        expected: Any = None
        actual: Any = None
        if said_of is None or not value_there:
            # The row that is at fault is the one that is not there.
            missing, named = ("fact", fact) if said_of is None else ("value", value_ref)
            sentence = f"{where}: its fact, or the value of that, is missing"
            yield make_problem(sentence, missing, {"hash": named}, expected=named)
        elif (said_of, said_type) != (entity, fact_type):
            wrong, expected, actual = "its fact differs", (entity, fact_type), stored[:2]
        elif parent != before and not _taken_before(view, branch, entity, seq, op_index):
            wrong, expected, actual = "its fact does not follow the one before it", before, parent
        elif spelling is not None and (spelling == data or _name_of(spelling) != value_ref):
            wrong, expected, actual = "its text is not its value's", value_ref, spelling
        if wrong is not None:
            yield make_problem(
                f"{where}: {wrong}", "occurrence", key, expected=expected, found=actual
            )
        if early:
            sentence = f"fact {fact} about {entity!r}: occurs before its first occurrence"
            yield make_problem(sentence, "fact", {"hash": fact}, expected=f"at most {seq}")
        yield from _belongs(where, key, commit_branch)

    def finish(self, view: HistoryReader) -> Iterator[Problem]:
        """Do nothing: a row is complete by itself."""
        del view
        return iter(())


def _belongs(where: str, key: dict[str, Any], commit_branch: str | None) -> Iterator[Problem]:
    """Check that an occurrence is part of a commit on its branch."""
    seq, branch = key["seq"], key["branch"]
    if commit_branch is None:
        sentence = f"{where}: belongs to no commit"
        yield make_problem(sentence, "commit", {"seq": seq}, expected=f"a commit {seq}")
    elif commit_branch != branch:
        sentence = f"{where}: belongs to no commit of its branch"
        yield make_problem(sentence, "occurrence", key, expected=commit_branch, found=branch)


def _taken_before(view: HistoryReader, branch: str, entity: str, seq: int, op_index: int) -> bool:
    """Return True if gc removed what an occurrence followed."""
    return view.value(view.sql.gap, (branch, entity, seq, op_index)) is not None


def _inherited(view: HistoryReader, branch: str, entity: str, seq: int) -> str | None:
    """Return the fact that a branch showed before its own first one."""
    for link in chain(view, branch, seq)[1:]:
        fact = view.value(view.sql.newest_fact, (link.branch, entity, link.cap))
        if fact is not None:
            return str(fact)
    return None


def _commits(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    [before] = next(_rows(view, view.sql.verify_commit_before, part.low), (None,))
    for row in _rows(view, view.sql.verify_commits, part.bounds):
        named, seq, *_, previous, _, _ = row
        if previous != before:
            yield make_problem(
                f"commit {seq}: does not follow the commit before it",
                "commit",
                {"seq": seq},
                expected=before,
                found=previous,
            )
        wrong = broken(view, seq)
        if wrong:
            yield seal_broken(seq)
        elif wrong is None:
            wrong = not _as_committed(view, row)
        if wrong:
            yield make_problem(
                f"commit {seq}: its hash does not follow from its row and its facts",
                "commit",
                {"seq": seq},
                expected=named,
            )
        before = named


def _heads(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for branch, entity in _rows(view, view.sql.verify_heads, part.bounds):
        yield make_problem(
            f"head of {entity!r} on {branch!r} is not its newest fact",
            "head",
            {"branch": branch, "id": entity},
        )


def sound(view: HistoryReader, seq: int) -> bool:
    """Return True if a commit is unchanged, provided that nothing was removed from it."""
    rows = list(_rows(view, view.sql.sealed_commit, (seq,)))
    return len(rows) == 1 and _as_committed(view, rows[0])


def _as_committed(view: HistoryReader, row: Row) -> bool:
    try:
        return bool(_made_again(view, row) == row[0])
    except _UNREADABLE:
        return False


def _made_again(view: HistoryReader, row: Row) -> str:
    """Compute the hash of a commit from its stored rows."""
    named, seq, branch, session, local_seq, original, resolution, previous, reads, created_at = row
    occurrences = list(_rows(view, view.sql.occurrences_of_commit, (branch, seq)))
    if [op_index for op_index, _, _ in occurrences] != list(range(len(occurrences))):
        raise ContentError(f"commit {seq} has holes")
    stored_reads = decode(original).get("reads")
    if reads != (None if stored_reads is None else trusted(stored_reads)):
        raise ContentError(f"the reads of commit {seq} are not those of its request")
    decided = decode(resolution)
    resolved = decided.get("resolved_pending_reads", [])
    expected = {"seq": seq, "hash": named}
    if resolved:
        expected["resolved_pending_reads"] = resolved
    if trusted(expected) != resolution:
        raise ContentError(f"the resolution of commit {seq} is not its own")
    return str(
        identity.commit_reference(
            seq=seq,
            branch=branch,
            session=session,
            local_seq=local_seq,
            created_at=created_at,
            original=original,
            resolved=resolved,
            facts=[Reference.parse(fact) for _, fact, _ in occurrences],
            texts=[data for _, _, data in occurrences],
            previous=None if previous is None else Reference.parse(previous),
        )
    )


RULES = (
    Rule("values", "hash", _values),
    Rule("empty value", "", _empty),
    Rule("spellings", "entity", _spellings),
    Rule("facts", "hash", _facts),
    rule_in_order("occurrences", _Occurrences),
    Rule("commits", "seq", _commits),
    Rule("heads", "entity", _heads),
)
