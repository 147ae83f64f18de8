"""The log of facts: content-addressed changes of entities, each with its predecessor.

The hash of a fact is the merkle reference of

    {"type": "set", "id", "value", "parent"}     a whole document
    {"type": "patch", "id", "ops", "parent"}     a list of patches
    {"type": "delete", "id", "parent"}           its end

where `parent` is the fact that its author built on: the newest that the branch showed, be it its
own or inherited, or an earlier one of the same commit. For an entity that had none, `parent` is the
reference to `{"id": id}`. A writer never sends parents; they are found here. The first fact of an
entity may be a patch, or a delete.

A fact covers neither branch nor seq, so equal facts on two branches are one row, and rows of
`occurrence` tell where each was said. What is unique about a commit is in the commit's own hash:
its seq, its session, its time, the request, its facts with their exact texts, and the commit before
it.

Taking rows out of a log of facts, with the facts and values that nothing refers to then.

A fact goes with the last place where it was said; a value with the last fact and snapshot that
refer to it. The parent of a fact that stays may be gone: its hash still stands in the fact, and a
row of `gc_gap` says that it was taken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.content import Reference, refer
from fourfold.kernel import Transaction, load_queries
from fourfold.kernel.index_build import IndexPlan
from fourfold.models.documents import database
from fourfold.models.documents.ancestry import chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.facts import identity
from fourfold.models.documents.facts.verify import RULES, sound
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import (
    AppendedRows,
    GcStatements,
    History,
    HistoryReader,
    Row,
)
from fourfold.models.documents.request import RequestStep
from fourfold.models.documents.timestamps import next_moment

_REMOVAL_SQL = load_queries("fourfold.models.documents.facts")


def remove(txn: Transaction, branch: str, entity: str, rows: Sequence[Row]) -> Tally:
    """Delete occurrences of facts about an entity of a branch."""
    places = [(branch, entity, row[2], row[3]) for row in rows]
    txn.execute_many(_REMOVAL_SQL.delete_occurrence, places)
    tally = Tally()
    tally.note("revisions", len(rows), sum(len(row[6] or b"") for row in rows))
    refs = []
    for row in rows:
        named = row[4].decode()
        value = txn.value(_REMOVAL_SQL.value_of_fact, (named,))
        txn.execute(_REMOVAL_SQL.delete_fact, (named,))
        if txn.changes:
            tally.note("facts", 1, 0)
            refs.append(value)
        else:
            txn.execute(_REMOVAL_SQL.move_fact, (named,))
    tally.join(release(txn, refs))
    return tally


def release(txn: Transaction, refs: Sequence[str | None]) -> Tally:
    """Delete those of the values that are not referenced."""
    tally = Tally()
    for ref in dict.fromkeys(refs):
        size = txn.value(_REMOVAL_SQL.orphan, (ref,))
        if size is not None:
            txn.execute(_REMOVAL_SQL.delete_value, (ref,))
            tally.note("values", 1, size)
    return tally


_INDEXES = (
    IndexPlan("idx_occurrence_fact", "occurrence", ("fact_hash",)),
    IndexPlan("idx_head_fact", "head", ("fact_hash",)),
    IndexPlan("idx_fact_value", "fact", ("value_ref",)),
    IndexPlan("idx_snapshot_value", "snapshot", ("value_ref",)),
)
"""By which references to facts and values are found when one of them is removed.

Only gc needs them, and every commit has to write them, so the first gc of a space builds them.
"""


def unreferred(view: Callable[[], AbstractContextManager[HistoryReader]]) -> Iterator[list[str]]:
    """Yield the values that nothing refers to, page by page."""
    last = ""
    while True:
        with view() as opened:
            page = opened.all(_REMOVAL_SQL.values_page, (last, limits.MAINTENANCE_PAGE_ROWS))
        orphans = [named for named, referred in page if not referred]
        if orphans:
            yield orphans
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return
        last = page[-1][0]


_PACKAGE = "fourfold.models.documents.facts"
_COLLECTION = "fourfold.models.documents.gc"
_SQL = (
    load_queries(_PACKAGE)
    .over(load_queries("fourfold.models.documents.revisions"))
    .over(load_queries(_COLLECTION))
)


_MANY = 8
"""Operations of a commit from which on their entities are looked up together."""


class _Fact(NamedTuple):
    """A fact to append; `hash`, `parent` and `value_ref` are columns."""

    reference: Reference
    hash: str
    parent: str | None
    value_ref: str


def append(txn: Transaction, appended: AppendedRows) -> None:
    """Insert the commit row, and for each operation its value, its fact and its occurrence."""
    seq, branch, steps = appended.seq, appended.branch, appended.steps
    facts = _facts(HistoryReader(txn, _SQL), appended)
    # The commit comes first, because its facts refer to it.
    commit = _insert_commit(txn, appended, facts)
    if not facts:
        return
    pairs = list(zip(steps, facts, strict=True))
    values = [(fact.value_ref, step.text) for step, fact in pairs if step.text is not None]
    txn.execute_many(_SQL.insert_value, values)
    txn.execute_many(
        _SQL.insert_fact,
        [
            (fact.hash, step.id, fact.value_ref, fact.parent, branch, seq, commit, step.op)
            for step, fact in pairs
        ],
    )
    txn.execute_many(
        _SQL.insert_occurrence,
        [
            (branch, step.id, seq, index, fact.hash, step.op, step.text, fact.value_ref)
            for index, (step, fact) in enumerate(pairs)
        ],
    )
    heads = {
        step.id: (branch, step.id, seq, index, fact.hash)
        for index, (step, fact) in enumerate(pairs)
    }
    txn.execute_many(_SQL.upsert_head, list(heads.values()))


def _facts(view: HistoryReader, appended: AppendedRows) -> list[_Fact]:
    """Return the facts of a commit; each follows the current fact of its entity."""
    newest = _heads(view, appended)
    facts = []
    for step in appended.steps:
        if step.id not in newest:
            newest[step.id] = _visible(view, appended, step.id)
        before = newest[step.id]
        value = _value(step)
        reference = identity.fact_reference(
            step.op, step.id, value, None if before is None else before[0]
        )
        named = str(reference)
        facts.append(
            _Fact(
                reference,
                named,
                None if before is None else before[1],
                identity.EMPTY_VALUE if value is None else str(value),
            )
        )
        newest[step.id] = (reference, named)
    return facts


def _heads(view: HistoryReader, appended: AppendedRows) -> dict[str, tuple[Reference, str] | None]:
    """Return the facts that the branch itself has about the entities of a large commit."""
    if len(appended.steps) < _MANY:
        return {}
    ids = trusted(list({step.id for step in appended.steps}))
    rows = view.all(_SQL.head_facts, (appended.branch, ids))
    newest: dict[str, tuple[Reference, str] | None] = {}
    if not appended.branch:
        # The default branch inherits nothing, so that what is not found is not there.
        newest = {step.id: None for step in appended.steps}
    newest.update((entity, (Reference.parse(fact), fact)) for entity, fact in rows)
    return newest


def _value(step: RequestStep) -> Reference | None:
    if step.text is None:
        return None
    # The value of a patch is compiled; its text is what was said.
    return refer(step.value if step.op == "set" else decode(step.text))


def _visible(
    view: HistoryReader, appended: AppendedRows, entity: str
) -> tuple[Reference, str] | None:
    """Return the fact that the branch shows for an entity: its own, or the inherited one."""
    fact = view.value(_SQL.head_fact, (appended.branch, entity))
    if fact is None and appended.branch:
        for link in chain(view, appended.branch, appended.seq)[1:]:
            # A head of an ancestor may lie beyond the fork, so the log is asked.
            fact = view.value(_SQL.newest_fact, (link.branch, entity, link.cap))
            if fact is not None:
                break
    return None if fact is None else (Reference.parse(fact), fact)


def _insert_commit(txn: Transaction, appended: AppendedRows, facts: list[_Fact]) -> str:
    before = txn.value(_SQL.newest_commit)
    created_at = appended.created_at or next_moment(txn.value(_SQL.newest_moment))
    commit = str(
        identity.commit_reference(
            seq=appended.seq,
            branch=appended.branch,
            session=appended.session,
            local_seq=appended.local_seq,
            created_at=created_at,
            original=appended.original,
            resolved=appended.resolved,
            facts=[fact.reference for fact in facts],
            texts=[step.text for step in appended.steps],
            previous=None if before is None else Reference.parse(before),
        )
    )
    resolution: dict[str, Any] = {"seq": appended.seq, "hash": commit}
    if appended.resolved:
        resolution["resolved_pending_reads"] = list(appended.resolved)
    txn.execute(
        _SQL.insert_commit,
        (
            commit,
            appended.seq,
            appended.branch,
            appended.session,
            appended.local_seq,
            appended.original,
            trusted(resolution),
            before,
            created_at,
        ),
    )
    return commit


def keep_snapshot(txn: Transaction, branch: str, entity: str, seq: int, text: str) -> None:
    """Insert a document as a value, and a row with the seq at which an entity had it."""
    value = str(refer(decode(text)))
    txn.execute(_SQL.insert_value, (value, text))
    txn.execute(_SQL.insert_snapshot, (branch, entity, seq, value, text))


FACTS = History(
    name="facts",
    profile=database.profile("documents-facts"),
    migrations=database.migrations(_PACKAGE),
    sql=_SQL,
    seq=database.counter(_SQL),
    append=append,
    keep_snapshot=keep_snapshot,
    rules=RULES,
    collecting=GcStatements(sound, remove, release, _INDEXES, unreferred),
)
