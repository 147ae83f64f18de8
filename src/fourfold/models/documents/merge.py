"""Three-way merge of one branch into another.

The base is the newest commit that both branches share. Earlier merges count, so a repeated merge
brings only new changes. After criss-cross merges there are several bases; they are merged into a
virtual base first. For each entity that the source changed since the base:

    only the source changed it     the source's state is taken
    both changed it                it is merged by field, and within a field by operation

A change of one side is taken from that side, and an equal change of both sides is taken once.
Increments, appends and similar operations of both sides are all kept; see `operation_merge`. Any
other change of both sides to the same field is a conflict, and so is a deletion on one side and a
change on the other. A conflict stops the whole merge, and nothing is written, unless a resolution
for the entity or the path decides it.

A merge is one commit on the target. It is computed from a snapshot and carries the state that it
saw there; if that has changed, it is computed again. Its request has the field `merge`, from which
later merges derive their base.

A merge does not revert: a branch that only marks an old state has no changes of its own, so merging
it changes nothing. To restore an old state, commit
`space.diff(branch, now, then).operations`. A merge does not repeat either: changes that were merged
and then reverted on the target stay reverted until the source changes them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import html
from fourfold.content import content_id
from fourfold.content.json_pointer import ABSENT, format_pointer
from fourfold.errors import (
    InvalidInput,
    MergeConflicted,
    PreconditionFailed,
    ReplayMismatch,
    StaleRead,
)
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import (
    BranchPoint,
    branch_named,
    chain,
    common_bases,
    last_seq,
    since,
)
from fourfold.models.documents.conflicts import active_branch
from fourfold.models.documents.diff import diff, identical
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.entity_merge import Ends, EntityMerger, side_of
from fourfold.models.documents.field_merge import Side
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import (
    Commit,
    ConfirmedRead,
    Operation,
    Reads,
    Revision,
    State,
)
from fourfold.models.documents.request import DocumentRequest, RequestStep, make_request
from fourfold.models.documents.resolutions import (
    Decisions,
    Resolutions,
    as_facts,
    check_resolutions,
)
from fourfold.models.documents.validation import check_session

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

MERGE_ATTEMPTS_MAX: Final = 5
"""Maximum attempts at a merge whose target changes."""


class MergeConflict(msgspec.Struct, frozen=True):
    """An entity that both sides changed, and not alike. The paths are where; "" is all of it."""

    id: str
    paths: tuple[str, ...]
    base: State | None
    source: State | None
    target: State | None

    def as_dict(self) -> dict[str, Any]:
        """Return the conflict without its documents, as in the details of the error."""
        seqs = {
            f"{name}_seq": 0 if state is None else state.seq
            for name, state in (
                ("base", self.base),
                ("source", self.source),
                ("target", self.target),
            )
        }
        return {"entity": self.id, "paths": list(self.paths), **seqs}


class MergeResult(msgspec.Struct, frozen=True):
    """Result of a merge or, in a dry run, its preview.

    `source`, `target` and `base` are the points that were merged. There is no commit when there was
    nothing to merge, or in a dry run; only a dry run can have conflicts.
    """

    source: BranchPoint
    target: BranchPoint
    base: BranchPoint
    operations: tuple[Operation, ...]
    conflicts: tuple[MergeConflict, ...] = ()
    commit: Commit | None = None
    heads: tuple[int, int] = (0, 0)
    """Head seqs of source and target that were merged: pass those of a dry run to the merge."""

    def _repr_html_(self) -> str:
        target = self.target.branch or "the default branch"
        outcome = "not committed" if self.commit is None else f"commit {self.commit.seq}"
        operations = html.table(
            ("op", "id", "data"),
            (
                (item["op"], item["id"], html.block(item.get("value", item.get("patches"))))
                for item in self.operations
            ),
        )
        conflicts = html.table(
            ("conflict", "paths"), ((item.id, ", ".join(item.paths)) for item in self.conflicts)
        )
        parts = (operations, conflicts) if self.conflicts else (operations,)
        return html.fragment(
            *parts, caption=f"Merge of {self.source.branch} into {target}: {outcome}"
        )


class MergeRequest(msgspec.Struct, frozen=True):
    """The arguments of a merge."""

    source: str
    target: str
    resolutions: Decisions
    field_level: bool

    @property
    def name(self) -> str:
        """Digest that differs from other requests with the same session and local_seq."""
        facts = {"source": self.source, "target": self.target, "field_level": self.field_level}
        return content_id(trusted(facts | as_facts(self.resolutions)).encode())


class _Proposal(msgspec.Struct):
    """A merge, computed from one consistent state."""

    source: BranchPoint
    target: BranchPoint
    bases: list[BranchPoint]
    operations: list[Operation] = msgspec.field(default_factory=list)
    conflicts: list[MergeConflict] = msgspec.field(default_factory=list)
    brought: list[str] = msgspec.field(default_factory=list)
    """The entities that the source changed since the base."""
    heads: tuple[int, int] = (0, 0)

    @property
    def base(self) -> BranchPoint:
        return self.bases[0]

    def result(self, commit: Commit | None = None) -> MergeResult:
        return MergeResult(
            self.source,
            self.target,
            self.base,
            tuple(self.operations),
            tuple(self.conflicts),
            commit,
            self.heads,
        )


def ask(
    source: str, target: str, resolutions: Resolutions | None, *, field_level: bool
) -> MergeRequest:
    """Check what can be checked without the database."""
    if source == target:
        raise InvalidInput(f"the branch {source!r:.100} cannot be merged into itself")
    return MergeRequest(source, target, check_resolutions(resolutions), field_level)


def merge(
    space: Space,
    merge_request: MergeRequest,
    *,
    session: str | None = None,
    local_seq: int | None = None,
    dry_run: bool = False,
    heads: tuple[int, int] | None = None,
) -> MergeResult:
    """Merge, or say what a merge would do; refuse if the heads are not `heads`."""
    if (session is None) != (local_seq is None):
        raise InvalidInput("pass both session and local_seq, or neither")
    if session is not None and local_seq is not None:
        check_session(session, local_seq)
    for attempt in range(1, MERGE_ATTEMPTS_MAX + 1):
        with space.view() as view:
            if session is not None and local_seq is not None and not dry_run:
                replayed = _replayed(view, merge_request, session, local_seq)
                if replayed is not None:
                    return replayed
            _check_heads(view, merge_request, heads)
            proposal = _propose(view, merge_request)
        if dry_run or not (proposal.brought or proposal.conflicts):
            return proposal.result()
        if proposal.conflicts:
            raise _refused(proposal)
        name = space.next_local() if session is None or local_seq is None else (session, local_seq)
        request = _request(merge_request, proposal, *name, replayable=session is not None)
        try:
            return proposal.result(_submit(space, proposal, request, heads))
        except StaleRead:
            if attempt == MERGE_ATTEMPTS_MAX:
                raise
    raise AssertionError("unreachable")


def _propose(view: HistoryReader, request: MergeRequest) -> _Proposal:
    heads = _heads(view, request.source, request.target)
    active_branch(view, request.target)
    newest = last_seq(view)
    source, target = BranchPoint(request.source, newest), BranchPoint(request.target, newest)
    proposal = _Proposal(source, target, common_bases(view, [source], [target]), heads=heads)
    ends = Ends(tuple(proposal.bases), (target,), (source,))
    merger = EntityMerger(view, field_level=request.field_level)
    ids = _touched_since(view, source, proposal.bases)
    before = merger.base_documents(ends.bases, ids)
    theirs = reader.states(view, chain(view, *source), ids)
    proposal.brought = [
        entity_id
        for entity_id in ids
        if not identical(before[entity_id], side_of(theirs[entity_id]))
    ]
    _refuse_unneeded(request, proposal.brought)
    ours = reader.states(view, chain(view, *target), proposal.brought)
    conflicts: dict[str, tuple[str, ...]] = {}
    for entity in proposal.brought:
        sides = before[entity], side_of(ours[entity]), side_of(theirs[entity])
        merged, paths = _decide(request, merger, entity, sides, ends)
        if paths:
            conflicts[entity] = paths
        elif entity in request.resolutions.entities or not identical(merged, sides[1]):
            # What was resolved is written even if the target looks so already: it is the author's
            # word, and later merges look only at entities that commits since their base wrote.
            proposal.operations.append(_operation(entity, sides[1], merged))
    if conflicts:
        bases = reader.states(view, chain(view, *proposal.base), conflicts)
        proposal.conflicts = [
            MergeConflict(entity, paths, bases[entity], theirs[entity], ours[entity])
            for entity, paths in conflicts.items()
        ]
    return proposal


def _heads(view: HistoryReader, source: str, target: str) -> tuple[int, int]:
    return branch_named(view, source).head_seq, branch_named(view, target).head_seq


def _check_heads(
    view: HistoryReader, request: MergeRequest, expected: tuple[int, int] | None
) -> None:
    """Refuse a merge if a branch was written since its dry run."""
    if expected is None:
        return
    heads = _heads(view, request.source, request.target)
    if heads != expected:
        raise PreconditionFailed(
            f"the heads of {request.source!r} and {request.target!r} are {heads}, not {expected}",
            hint="Try the merge with dry_run=True again, and pass the new heads.",
            details={"heads": list(heads)},
        )


def _refuse_unneeded(request: MergeRequest, brought: list[str]) -> None:
    unknown = request.resolutions.entities - set(brought)
    if unknown:
        raise InvalidInput(
            f"the resolution of {min(unknown)!r} is not needed: {request.source!r} has not changed "
            f"it since the base of this merge",
            hint="Try the merge with dry_run=True to see what it brings.",
            details={"entity": min(unknown)},
        )


def _touched_since(view: HistoryReader, source: BranchPoint, bases: list[BranchPoint]) -> list[str]:
    """Return the entities that commits wrote which the source has and a base has not.

    Others look alike at both: a merge writes every entity that it changes on its target.
    """
    entities: set[str] = set()
    for base in bases:
        for interval in since(view, [source], [base]).intervals:
            entities.update(row[0] for row in view.rows(view.sql.ids_touched, interval))
    return sorted(entities)


def _decide(
    request: MergeRequest,
    merger: EntityMerger,
    entity: str,
    sides: tuple[Side, Side, Side],
    ends: Ends,
) -> tuple[Side, tuple[str, ...]]:
    """Return the merged document of an entity, and the paths of the conflicts that are left."""
    decided = request.resolutions
    if entity in decided.documents:
        document = decided.documents[entity]
        return (ABSENT if document is None else document), ()
    outcome = merger.merge(entity, sides, ends)
    paths = tuple(format_pointer(conflict.path) for conflict in outcome.conflicts)
    if entity not in decided.entities:
        return outcome.document, paths
    chosen = decided.places.get(entity, {})
    needless = sorted(chosen.keys() - set(paths))
    if needless or not paths:
        where = f"path {needless[0]!r} of " if needless else ""
        raise InvalidInput(
            f"the resolution of {where}{entity!r} is not needed: there is no conflict",
            hint="Try the merge with dry_run=True to see the conflicts.",
            details={"entity": entity, "paths": needless, "conflicts": list(paths)},
        )
    otherwise = decided.sides.get(entity)
    outcome = merger.merge(entity, sides, ends, chosen, otherwise)
    return outcome.document, tuple(
        format_pointer(field_conflict.path) for field_conflict in outcome.conflicts
    )


def _operation(entity: str, ours: Side, merged: Side) -> Operation:
    """Return the smaller of the whole document and the patches that make it."""
    if not isinstance(merged, dict):
        return {"op": "delete", "id": entity}
    if isinstance(ours, dict) and not identical(ours, merged):
        patches = diff(ours, merged)
        if len(trusted(patches)) < len(trusted(merged)):
            return {"op": "patch", "id": entity, "patches": patches}
    return {"op": "set", "id": entity, "value": merged}


def _request(
    request: MergeRequest, proposal: _Proposal, session: str, local_seq: int, *, replayable: bool
) -> DocumentRequest:
    """Return the merge as a transaction that depends on everything it read on the target."""
    seq = proposal.target.seq
    reads = Reads(confirmed=[ConfirmedRead(entity, seq) for entity in proposal.brought])
    original = {
        "branch": request.target,
        "local_seq": local_seq,
        "merge": {
            "source": request.source,
            "source_seq": proposal.source.seq,
            "target_seq": seq,
            "base": {"branch": proposal.base.branch, "seq": proposal.base.seq},
            "asked": request.name,
        },
        "operations": proposal.operations,
        "preconditions": [],
        "reads": msgspec.to_builtins(reads),
    }
    # When both sides made the same changes there is nothing to write, but that they have met must
    # be on record, or the next change of one of them would look like a conflict.
    steps: tuple[RequestStep, ...] = ()
    if proposal.operations:
        steps = make_request(
            proposal.operations,
            branch=request.target,
            session=session,
            local_seq=local_seq,
            replayable=replayable,
        ).steps
    return DocumentRequest(
        request.target, session, local_seq, steps, reads, (), trusted(original), replayable
    )


def _submit(
    space: Space, proposal: _Proposal, request: DocumentRequest, heads: tuple[int, int] | None
) -> Commit:
    def check(view: HistoryReader) -> None:
        """Another merge of these branches may have come first, and moved the base."""
        if heads is not None and heads != _heads(
            view, proposal.source.branch, proposal.target.branch
        ):
            # The next attempt reports it, unless this very request came first.
            raise StaleRead("a branch was written meanwhile", hint="Merge again.")
        seq = last_seq(view)
        source, target = proposal.source._replace(seq=seq), proposal.target._replace(seq=seq)
        named = (request.session, request.local_seq)
        if common_bases(view, [source], [target]) != proposal.bases or (
            request.replayable and view.one(view.sql.commit_of_session, named)
        ):
            raise StaleRead(
                f"another merge of {source.branch!r} and {target.branch!r} came first",
                hint="Merge again.",
            )
        if proposal.source.seq < horizon(view):
            # The next merge will read the source as it was for this one, so that must be there.
            raise StaleRead(
                f"a collection gave up {source.branch!r} as it was for this merge",
                hint="Merge again.",
            )

    return space.submit(request, check)


def _replayed(
    view: HistoryReader, request: MergeRequest, session: str, local_seq: int
) -> MergeResult | None:
    """Return the result of the same merge request if it was accepted before."""
    row = view.one(view.sql.commit_of_session, (session, local_seq))
    if row is None:
        return None
    seq, branch, text, _ = row
    original = decode(text)
    merged = original.get("merge")
    if branch != request.target or merged is None or merged["asked"] != request.name:
        raise ReplayMismatch(
            f"session {session!r} already sent another request as local_seq {local_seq}; "
            f"it became seq {seq}",
            details={"session": session, "local_seq": local_seq, "seq": seq},
        )
    # Its rows may have been collected since; the request of a merge is not.
    revisions = tuple(
        Revision(
            branch,
            operation["id"],
            seq,
            index,
            operation["op"],
            operation.get("value", operation.get("patches")),
        )
        for index, operation in enumerate(original["operations"])
    )
    return MergeResult(
        BranchPoint(merged["source"], merged["source_seq"]),
        BranchPoint(branch, merged["target_seq"]),
        BranchPoint(merged["base"]["branch"], merged["base"]["seq"]),
        tuple(original["operations"]),
        commit=Commit(seq, branch, session, local_seq, revisions, replayed=True),
    )


def _refused(proposal: _Proposal) -> MergeConflicted:
    source, target, conflicts = proposal.source, proposal.target, proposal.conflicts
    first = conflicts[0]
    more = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return MergeConflicted(
        f"{source.branch!r} cannot be merged into {target.branch!r}: both changed "
        f"{first.id!r}{more}",
        hint="Give `resolutions` for these entities or paths, or make the branches agree on them "
        "first.",
        details={
            "source": source.branch,
            "source_seq": source.seq,
            "target": target.branch,
            "target_seq": target.seq,
            "base": {"branch": proposal.base.branch, "seq": proposal.base.seq},
            "conflicts": [conflict.as_dict() for conflict in conflicts],
        },
    )
