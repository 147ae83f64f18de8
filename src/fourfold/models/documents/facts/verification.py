"""Checking a log of facts: every hash is made again from what it names, and every chain walked.

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
from fourfold.models.documents.chain import chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.facts import identity
from fourfold.models.documents.history import Row, View

_UNREADABLE = (FourfoldError, ValueError, TypeError, AttributeError, RecursionError)
"""What damaged text and damaged references raise when they are read."""


def problems(view: View) -> Iterator[str]:
    """Where the log contradicts itself."""
    yield from _values(view)
    yield from _facts(view)
    yield from _occurrences(view)
    yield from _commits(view)
    for branch, entity in _rows(view, view.sql.verify_heads):
        yield f"head of {entity!r} on {branch!r} is not its newest fact"


def _rows(view: View, sql: str, params: Row = ()) -> Iterator[Row]:
    """Rows whose texts come as bytes. What is no text any more is shown; it then equals nothing."""
    for row in view.rows(sql, params):
        yield tuple(
            each.decode(errors="backslashreplace") if isinstance(each, bytes) else each
            for each in row
        )


def _values(view: View) -> Iterator[str]:
    empty = False
    for named, data in _rows(view, view.sql.verify_values):
        if named == identity.EMPTY_VALUE:
            empty = data is None
        elif not _spells(data, named):
            yield f"value {named}: its data is not what its hash says"
    if not empty:
        yield f"value {identity.EMPTY_VALUE}: is missing, or has data"
    for branch, entity, seq, value_ref, text in _rows(view, view.sql.verify_spellings):
        if not _spells(text, value_ref):
            yield f"snapshot of {entity!r} on {branch!r} at seq {seq}: its text is not its value's"


def _spells(text: object, named: object) -> bool:
    """Whether this is our text of a value with that name; any other text was not written by us."""
    try:
        value = decode(text)  # type: ignore[arg-type]
        return trusted(value) == text and str(refer(value)) == named
    except _UNREADABLE:
        return False


def _facts(view: View) -> Iterator[str]:
    for row in _rows(view, view.sql.verify_facts):
        named, entity, value_ref, parent, fact_type, *first, said_on, said_at, commit = row
        try:
            made = identity.fact_reference(
                fact_type,
                entity,
                None if value_ref == identity.EMPTY_VALUE else Reference.parse(value_ref),
                None if parent is None else Reference.parse(parent),
            )
            same = str(made) == named
            same &= (fact_type == "delete") == (value_ref == identity.EMPTY_VALUE)
        except _UNREADABLE:
            same = False
        if not same:
            yield f"fact {named} about {entity!r}: its hash does not follow from what it says"
        if first != [said_on, said_at, commit]:
            yield f"fact {named} about {entity!r}: was not first said where its row says"


def _occurrences(view: View) -> Iterator[str]:
    """Every entity of every branch, from its first fact on."""
    last: tuple[Any, ...] | None = None
    before: str | None = None
    for row in _rows(view, view.sql.verify_occurrences):
        branch, entity, seq, op_index, fact, fact_type, text, *found = row
        where = f"occurrence of {entity!r} on {branch!r} at seq {seq}, operation {op_index}"
        said_of, said_type, parent, value_ref, value_there, data, commit_branch = found
        if last != (branch, entity):
            last = (branch, entity)
            try:
                before = _inherited(view, branch, entity, seq)
            except _UNREADABLE as error:
                yield f"{where}: what it follows cannot be found: {error}"
                before = parent
        if said_of is None or not value_there:
            yield f"{where}: its fact, or the value of that, is missing"
        elif (said_of, said_type) != (entity, fact_type):
            yield f"{where}: its fact says another thing"
        elif parent != before:
            yield f"{where}: its fact does not follow the one before it"
        elif text is not None and (text == data or not _spells(text, value_ref)):
            yield f"{where}: its text is not its value's"
        if commit_branch != branch:
            yield f"{where}: belongs to no commit"
        before = fact


def _inherited(view: View, branch: str, entity: str, seq: int) -> str | None:
    """The fact that a branch showed before it said anything itself."""
    for link in chain(view, branch, seq)[1:]:
        found = view.value(view.sql.newest_fact, (link.branch, entity, link.cap))
        if found is not None:
            return str(found)
    return None


def _commits(view: View) -> Iterator[str]:
    before: str | None = None
    for row in _rows(view, view.sql.verify_commits):
        named, seq, *_, previous, _, _ = row
        if previous != before:
            yield f"commit {seq}: does not follow the commit before it"
        try:
            same = _made_again(view, row) == named
        except _UNREADABLE:
            same = False
        if not same:
            yield f"commit {seq}: its hash does not follow from its row and its facts"
        before = named


def _made_again(view: View, row: Row) -> str:
    """The hash of a commit, from what is stored of it."""
    named, seq, branch, session, local_seq, original, resolution, previous, reads, created_at = row
    occurrences = list(_rows(view, view.sql.occurrences_of_commit, (branch, seq)))
    if [op_index for op_index, _, _ in occurrences] != list(range(len(occurrences))):
        raise ContentError(f"commit {seq} has holes")
    asked = decode(original).get("reads")
    if reads != (None if asked is None else trusted(asked)):
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
