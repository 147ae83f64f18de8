"""The job `delta-log`: a Delta log over published segments, for readers of Delta tables.

The manifests are authoritative, and the log is derived from them: it refers to the same objects,
nothing is copied. A run adds new objects and removes those that are no longer referenced, in one
commit of the log; without changes there is none. The table is at the root of the objects, and its
partition columns `stream` and `content_type` exist only in the log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fourfold.archive.delta_actions import Action, AddFile, Snapshot, Txn, table_actions
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import FileStatistics, encode_schema
from fourfold.archive.segment_writer import schema as stored_schema
from fourfold.objects import FolderStore, ObjectStore, open_objects
from fourfold.pipeline.jobs.bootstrap import objects_address
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, pluralize
from fourfold.pipeline.streams import published_cut
from fourfold.pipeline.streams.published_cut import ObjectRecords
from fourfold.query.tables import arrow

CHECKPOINT_COMMITS: Final = 10
"""Commits between two checkpoints."""
_APPLICATION: Final = "fourfold"
_PARTITIONS: Final = ("stream", "content_type")


class TableChange(NamedTuple):
    """The objects to add and to remove, all objects, and the state of the log before."""

    before: Snapshot
    added: dict[str, ObjectRecords]
    removed: frozenset[str]
    objects: dict[str, ObjectRecords]


class DeltaLogJob(Job):
    """Maintain a Delta log over published segments."""

    name = "delta-log"
    summary = "Maintain a Delta log over the published segments of streams, without a copy."
    explanation = (
        "Readers of Delta tables read the objects as one table, with the stream as a partition "
        "column. It needs no Spark. Run it again after each publication."
    )
    options = (Option("objects", "URL of the objects; default: `objects.url` of the store."),)

    def target(self, context: Context) -> str:
        """Return the URL of the objects."""
        return objects_address(context)

    def plan(self, context: Context) -> Plan:
        """Compare the log with the manifests."""
        url = objects_address(context)
        change = _change(url)
        return Plan(
            output=f"{url}/_delta_log",
            ranges=(Range(url, 0, len(change.objects)),),
            facts={"added": len(change.added), "removed": len(change.removed)},
            empty=not change.added and not change.removed,
            inputs=change,
        )

    def run(self, context: Context, plan: Plan) -> TableChange:
        """Return the change of the log."""
        del context
        change: TableChange = plan.inputs
        return change

    def commit(self, context: Context, plan: Plan, result: TableChange) -> Report:
        """Commit the change to the log."""
        del plan
        if result.added or result.removed:
            _commit(objects_address(context), result)
        rows = sum(part.held.end - part.held.start + 1 for part in result.objects.values())
        facts: Mapping[str, Any] = {
            "objects": len(result.objects),
            "added": len(result.added),
            "removed": len(result.removed),
            "records": rows,
        }
        return Report(
            rows_in=len(result.objects),
            rows_out=len(result.added),
            facts=facts,
            sentence=f"the log has {pluralize(len(result.objects), 'object')} with "
            f"{pluralize(rows, 'record')}; {len(result.added)} added, "
            f"{len(result.removed)} removed",
        )


def _change(url: str) -> TableChange:
    with open_objects(url) as store:
        objects = {_path(store, part.held.key): part for part in published_cut.read_cut(url).parts}
        before = DeltaLog(store, "").snapshot()
    added = {path: part for path, part in objects.items() if path not in before.files}
    return TableChange(before, added, frozenset(before.files.keys() - objects.keys()), objects)


def _commit(url: str, change: TableChange) -> None:
    before = change.before
    before.check_writable()
    with open_objects(url) as objects:
        log = DeltaLog(objects, "")
        log.commit(_actions(change), before.version + 1)
        if (before.version + 1) % CHECKPOINT_COMMITS == 0:
            # Retention deletes the objects, not the log.
            log.checkpoint(log.update(before), forget_removed_before_ms=_now_ms() + 1)


def _actions(change: TableChange) -> list[Action]:
    before = change.before
    txn = before.txns.get(_APPLICATION)
    actions: list[Action] = [Txn(_APPLICATION, 1 if txn is None else txn.version + 1)]
    if not before.exists:
        actions += table_actions(_schema(), name="streams", partition_columns=_PARTITIONS)
    elif before.defined().schema_string != encode_schema(_schema()):
        actions.append(before.metadata_with(_schema()))
    now_ms = _now_ms()
    actions += [before.files[path].removed(now_ms) for path in sorted(change.removed)]
    actions += [
        AddFile(
            path,
            part.held.size,
            part.held.last_ms,
            partition_values={"stream": part.stream, "content_type": part.content_type},
            stats=FileStatistics(
                part.held.end - part.held.start + 1,
                {"offset": part.held.start},
                {"offset": part.held.end},
                {"offset": 0},
            ).encode(),
        )
        for path, part in change.added.items()
    ]
    return actions


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _schema() -> Any:
    """Return the columns of the table. Delta tables have timestamps in microseconds."""
    pa = arrow()
    times = {"append_time": pa.timestamp("us", tz="UTC")}
    stored = [pa.field(field.name, times.get(field.name, field.type)) for field in stored_schema()]
    return pa.schema([*(pa.field(name, pa.string()) for name in _PARTITIONS), *stored])


def _path(objects: ObjectStore, key: str) -> str:
    """Return the path of an object in the log, relative to the table."""
    if isinstance(objects, FolderStore):
        return str(objects.path(key).relative_to(objects.root))
    return key


job = DeltaLogJob()
