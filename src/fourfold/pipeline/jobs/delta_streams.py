"""`delta-log`: a Delta log over published segments, for readers that know Delta tables.

The manifests are the truth, and the log is derived from them: it names the very objects that they
name, nothing is copied. A run adds the objects that are new and takes out those that are no longer
named, in one commit of the log; while nothing changed there is none. The table lies at the root of
the objects, and its partition columns `stream` and `content_type` stand in the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.segment_writer import schema as stored_schema
from fourfold.errors import MissingDependency
from fourfold.objects import FolderStore, ObjectStore, S3Store, open_objects
from fourfold.pipeline.jobs.bootstrap import objects_address
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, counted
from fourfold.pipeline.streams import published_cut
from fourfold.pipeline.streams.published_cut import Part
from fourfold.pipeline.tables import arrow

_APPLICATION: Final = "fourfold"
_PARTITIONS: Final = ("stream", "content_type")


class Place(NamedTuple):
    """Where the table is, as the package deltalake has to be told."""

    uri: str
    options: dict[str, str]


class Change(NamedTuple):
    """What the log lacks, and what it has too much; all that it shall name."""

    added: dict[str, Part]
    removed: frozenset[str]
    wanted: dict[str, Part]


class DeltaLog(Job):
    """Keep a Delta log over published segments."""

    name = "delta-log"
    summary = "Keep a Delta log over the published segments of streams, without a copy."
    explanation = (
        "Readers of Delta tables read the objects as one table, with the stream as a partition "
        "column. It needs no Spark. Run it again whenever something was published."
    )
    options = (
        Option("objects", "Where the objects are; if not given, `objects.url` of the store."),
    )

    def target(self, context: Context) -> str:
        return objects_address(context)

    def plan(self, context: Context) -> Plan:
        url = objects_address(context)
        change = _change(url)
        return Plan(
            output=f"{url}/_delta_log",
            ranges=(Range(url, 0, len(change.wanted)),),
            facts={"added": len(change.added), "removed": len(change.removed)},
            empty=not change.added and not change.removed,
        )

    def run(self, context: Context, plan: Plan) -> Change:
        del plan
        return _change(objects_address(context))

    def commit(self, context: Context, plan: Plan, result: Change) -> Report:
        del plan
        if result.added or result.removed:
            _commit(objects_address(context), result)
        rows = sum(part.held.end - part.held.start + 1 for part in result.wanted.values())
        facts: Mapping[str, Any] = {
            "objects": len(result.wanted),
            "added": len(result.added),
            "removed": len(result.removed),
            "records": rows,
        }
        return Report(
            rows_in=len(result.wanted),
            rows_out=len(result.added),
            facts=facts,
            sentence=f"the log names {counted(len(result.wanted), 'object')} with "
            f"{counted(rows, 'record')}; {len(result.added)} are new, {len(result.removed)} went",
        )


def _change(url: str) -> Change:
    with open_objects(url) as objects:
        wanted = {_path(objects, part.held.key): part for part in published_cut.read_cut(url).parts}
        table = _table(_place(objects))
    known = frozenset() if table is None else frozenset(_files(table))
    added = {path: part for path, part in wanted.items() if path not in known}
    return Change(added, known - wanted.keys(), wanted)


def _commit(url: str, change: Change) -> None:
    delta = _package()
    from deltalake.transaction import (  # noqa: PLC0415 - _package has looked for it
        create_table_with_add_actions,
    )

    with open_objects(url) as objects:
        place = _place(objects)
    table = _table(place)
    before = 0 if table is None else int(table.transaction_version(_APPLICATION) or 0)
    told = delta.CommitProperties(app_transactions=[delta.Transaction(_APPLICATION, before + 1)])
    schema = delta.Schema.from_arrow(_schema())
    if table is None:
        create_table_with_add_actions(
            place.uri,
            schema,
            _actions(change.wanted),
            mode="error",
            partition_by=list(_PARTITIONS),
            name="streams",
            storage_options=place.options,
            commit_properties=told,
        )
        return
    # The package takes single objects out of a table only by naming all others anew.
    actions, mode = (change.wanted, "overwrite") if change.removed else (change.added, "append")
    table.create_write_transaction(
        _actions(actions),
        mode=mode,
        schema=schema,
        partition_by=list(_PARTITIONS),
        commit_properties=told,
    )


def _actions(parts: Mapping[str, Part]) -> list[Any]:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - _package has looked for it

    return [
        AddAction(
            path=path,
            size=part.held.size,
            partition_values={"stream": part.stream, "content_type": part.content_type},
            modification_time=part.held.last_ms,
            data_change=True,
            stats=msgspec.json.encode(
                {
                    "numRecords": part.held.end - part.held.start + 1,
                    "minValues": {"offset": part.held.start},
                    "maxValues": {"offset": part.held.end},
                    "nullCount": {"offset": 0},
                }
            ).decode(),
        )
        for path, part in parts.items()
    ]


def _schema() -> Any:
    """The columns of the table. Delta tables have times in microseconds."""
    pa = arrow()
    times = {"append_time": pa.timestamp("us", tz="UTC")}
    stored = [pa.field(each.name, times.get(each.name, each.type)) for each in stored_schema()]
    return pa.schema([*(pa.field(name, pa.string()) for name in _PARTITIONS), *stored])


def _path(objects: ObjectStore, key: str) -> str:
    """An object as the log names it: from the root of the table."""
    if isinstance(objects, FolderStore):
        return str(objects.path(key).relative_to(objects.root))
    return key


def _place(objects: ObjectStore) -> Place:
    if isinstance(objects, FolderStore):
        return Place(str(objects.root), {})
    assert isinstance(objects, S3Store)
    settings = objects.settings
    options = {"AWS_REGION": settings.region or "us-east-1"}
    if settings.endpoint is not None:
        options["AWS_ENDPOINT_URL"] = settings.endpoint
        options["AWS_ALLOW_HTTP"] = str(settings.endpoint.startswith("http:")).lower()
    return Place(f"s3://{settings.bucket}/{settings.prefix}".rstrip("/"), options)


def _table(place: Place) -> Any:
    delta = _package()
    if not delta.DeltaTable.is_deltatable(place.uri, place.options):
        return None
    return delta.DeltaTable(place.uri, storage_options=place.options)


def _files(table: Any) -> list[str]:
    return [str(each) for each in arrow().table(table.get_add_actions()).column("path").to_pylist()]


def _package() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "deltalake is not installed", hint="Install it: `pip install 'fourfold[delta]'`."
        ) from error
    return deltalake


job = DeltaLog()
