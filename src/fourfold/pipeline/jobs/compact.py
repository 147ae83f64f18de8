"""`compact`: small segments of all streams into large ones, in one job.

Spark's workers write the new segments, with the function that the node calls by itself. The driver
takes them in: each stream's manifest is replaced once, and the old objects are retired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fourfold import limits
from fourfold.archive.reading import StoredSegments
from fourfold.archive.records import Sealed
from fourfold.errors import FourfoldError, StorageError
from fourfold.models.streams.archive import LOCAL, compacting
from fourfold.models.streams.archive.compacting import Compacted, Group
from fourfold.pipeline.jobs import built_elsewhere
from fourfold.pipeline.jobs.shape import Context, Job, Plan, Range, Report, counted
from fourfold.store import Store, open_store
from fourfold.store.layout import stream_segments, streams_path


@dataclass(slots=True)
class Done:
    """What became of the waves."""

    segments: int = 0
    compacted: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Compact(Job):
    """Make large segments of small ones."""

    name = "compact"
    summary = "Make large segments of small ones that are published."
    explanation = (
        "Spark's workers write the new segments, and the store's own writer takes them in and "
        "publishes them, so the store must not be served meanwhile. The old objects are deleted "
        "by `fourfold publish --collect` after their time of grace."
    )

    def plan(self, context: Context) -> Plan:
        found: list[Group] = []
        if streams_path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                found = _groups(store)
        return Plan(
            output="segments of the store",
            ranges=tuple(
                Range(
                    f"{each.stream}@{each.segments[0].start_offset}",
                    each.segments[0].start_offset,
                    each.segments[-1].end_offset + 1,
                )
                for each in found
            ),
            facts={
                "streams": len({each.stream for each in found}),
                "segments": sum(len(each.segments) for each in found),
            },
            empty=not found,
        )

    def run(self, context: Context, plan: Plan) -> Done:
        done = Done()
        with open_store(context.root) as store:
            tried: set[tuple[str, ...]] = set()
            while True:
                # Of each stream one group at a time: the next one waits for a manifest.
                found = {
                    each.stream: each
                    for each in reversed(_groups(store))
                    if _names(each) not in tried
                }
                if not found:
                    return done
                wave = list(found.values())[: limits.COMPACT_WAVE]
                tried |= {_names(each) for each in wave}
                self._wave(context, store, wave, done)
                context.advance("compacting", done.segments, plan.facts["segments"])

    def _wave(self, context: Context, store: Store, wave: list[Group], done: Done) -> None:
        archive = store.archive
        outcomes = built_elsewhere.build_all(context, partial(build, context.root), wave)
        for group, outcome in zip(wave, outcomes, strict=True):
            if outcome.made is None:
                done.failures.append((group.stream, outcome.problem or ""))
                continue
            path, sealed = msgspec.json.decode(outcome.made, type=tuple[str, Sealed])
            try:
                if archive.upkeep.adopt_segment(Compacted(group, sealed, Path(path))):
                    done.segments += len(group.segments)
                    done.compacted += 1
                archive.upkeep.publish(group.stream)
            except FourfoldError as error:
                done.failures.append((group.stream, error.message))

    def commit(self, context: Context, plan: Plan, result: Done) -> Report:
        """It is all in already. What failed is told: one stream never keeps the others waiting."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"the stream {name!r} cannot be compacted: {problem}")
            context.skip(name, problem)
        return Report(
            rows_in=result.segments,
            rows_out=result.compacted,
            facts={"segments": result.segments, "compacted": result.compacted},
            sentence=f"{counted(result.segments, 'segment')} became {result.compacted}",
        )


def _groups(store: Store) -> list[Group]:
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        return list(compacting.due(snapshot, store.archive_policy))


def _names(group: Group) -> tuple[str, ...]:
    return tuple(each.segment_id for each in group.segments)


def build(root: Path, segments: StoredSegments, group: Any, folder: Path) -> str:
    """In a worker: the segment of a group."""
    made = compacting.build(segments, group, folder, stream_segments(root) / LOCAL)
    return msgspec.json.encode((str(made.path), made.sealed)).decode()


job = Compact()
