"""Merge of single entities, and the base that they are merged from.

With one base, the document of an entity there is the base. When merges crossed each other there are
several bases, and what they have in common is itself the result of a merge, of which there is no
commit. So the bases are merged with each other, from their own bases, as git's recursive strategy
does. The result is only compared with and never stored. Where the bases contradict each other it
holds UNKNOWN, so that the two sides must agree there; a conflict among the bases stops nothing.

The base of the bases may be older than what a collection left, or may be reached only through more
levels than are traced. Then it counts as UNKNOWN as a whole: what the bases have in common is
known, and the rest is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fourfold.content.json_pointer import ABSENT
from fourfold.errors import HistoryTruncated
from fourfold.models.documents import field_merge, reader
from fourfold.models.documents.ancestry import BranchPoint, Since, chain, common_bases, since
from fourfold.models.documents.field_merge import UNKNOWN, Choice, FieldMerge, Side, Verdict
from fourfold.models.documents.gc.horizon import check_point
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.operation_merge import Combiner, SideLog, read_log
from fourfold.models.documents.records import State

MERGE_BASE_DEPTH_MAX: Final = 32
"""Maximum depth of virtual bases in a criss-cross merge."""

Points = tuple[BranchPoint, ...]


class Ends(NamedTuple):
    """Two sides of a merge, and their bases. Several points are one commit that has them all as
    parents.
    """

    bases: Points
    ours: Points
    theirs: Points


class EntityMerger:
    """Merges entities, and remembers what it read of the past of their branches."""

    def __init__(self, view: HistoryReader, *, field_level: bool) -> None:
        self._view = view
        self._whole = not field_level
        self._changes: dict[tuple[Points, Points], Since] = {}

    def merge(
        self,
        entity: str,
        documents: Sequence[Side],
        ends: Ends,
        resolutions: Mapping[Any, Any] | None = None,
        otherwise: Choice | Verdict | None = None,
    ) -> FieldMerge:
        """Merge an entity, of which `documents` are the base, ours and theirs."""
        base, ours, theirs = documents

        def log(points: Points) -> SideLog:
            return read_log(self._view, entity, self._since(points, ends.bases))

        combine = Combiner(
            lambda: log(ends.ours), lambda: log(ends.theirs), virtual=len(ends.bases) > 1
        )
        return field_merge.merge(
            base,
            ours,
            theirs,
            resolutions,
            otherwise=otherwise,
            combine=None if self._whole else combine,
            whole=self._whole,
        )

    def base_documents(
        self, bases: Points, entities: Sequence[str], depth: int = 0
    ) -> dict[str, Side]:
        """Return the documents that several bases, merged with each other, have."""
        if len(bases) == 1:
            check_point(self._view, *bases[0])
            states = reader.states(self._view, chain(self._view, *bases[0]), entities)
            return {entity: side_of(state) for entity, state in states.items()}
        ends = Ends((), bases[:-1], bases[-1:])
        ours, theirs = (
            self.base_documents(points, entities, depth + 1) for points in (ends.ours, ends.theirs)
        )
        ends = ends._replace(bases=tuple(common_bases(self._view, ends.ours, ends.theirs)))
        before: dict[str, Side] = dict.fromkeys(entities, UNKNOWN)
        if depth < MERGE_BASE_DEPTH_MAX:
            with suppress(HistoryTruncated):
                before = self.base_documents(ends.bases, entities, depth + 1)
        return {
            entity: self.merge(
                entity, (before[entity], ours[entity], theirs[entity]), ends, otherwise=UNKNOWN
            ).document
            for entity in entities
        }

    def _since(self, points: Points, bases: Points) -> Since:
        changes = self._changes.get((points, bases))
        if changes is None:
            changes = self._changes[points, bases] = since(self._view, points, bases)
        return changes


def side_of(state: State | None) -> Side:
    """Return the document of a state as a side of a merge."""
    return ABSENT if state is None or state.document is None else state.document
