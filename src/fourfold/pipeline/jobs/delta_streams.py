"""The job `delta-log`: a Delta log over published segments, for readers of Delta tables.

The manifests are authoritative, and the log is derived from them: it refers to the same objects,
nothing is copied. A run adds new objects and removes those that are no longer referenced, in one
commit of the log; without changes there is none. The table is at the root of the objects, and its
partition columns `stream` and `content_type` exist only in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.segment_writer import schema as stored_schema
from fourfold.errors import MissingDependency
from fourfold.objects import FolderStore, ObjectStore, S3Store, open_objects
from fourfold.pipeline.jobs.bootstrap import objects_address
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, pluralize
from fourfold.pipeline.streams import published_cut
from fourfold.pipeline.streams.published_cut import Part
from fourfold.query.tables import arrow

_APPLICATION: Final = "fourfold"
_PARTITIONS: Final = ("stream", "content_type")


class Place(NamedTuple):
    """The location of the table, in the form that deltalake needs."""

    uri: str
    options: dict[str, str]


class Change(NamedTuple):
    """The objects to add and to remove, and all objects of the log."""

    added: dict[str, Part]
    removed: frozenset[str]
    objects: dict[str, Part]


class DeltaLog(Job):
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

    def run(self, context: Context, plan: Plan) -> Change:
        """Return the change of the log."""
        del context
        change: Change = plan.inputs
        return change

    def commit(self, context: Context, plan: Plan, result: Change) -> Report:
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


def _change(url: str) -> Change:
    with open_objects(url) as store:
        objects = {_path(store, part.held.key): part for part in published_cut.read_cut(url).parts}
        table = _table(_place(store))
    known = frozenset() if table is None else frozenset(_files(table))
    added = {path: part for path, part in objects.items() if path not in known}
    return Change(added, known - objects.keys(), objects)


def _commit(url: str, change: Change) -> None:
    delta = _package()
    from deltalake.transaction import (  # noqa: PLC0415 - checked by _package
        create_table_with_add_actions,
    )

    with open_objects(url) as objects:
        place = _place(objects)
    table = _table(place)
    before = 0 if table is None else int(table.transaction_version(_APPLICATION) or 0)
    properties = delta.CommitProperties(
        app_transactions=[delta.Transaction(_APPLICATION, before + 1)]
    )
    schema = delta.Schema.from_arrow(_schema())
    if table is None:
        create_table_with_add_actions(
            place.uri,
            schema,
            _actions(change.objects),
            mode="error",
            partition_by=list(_PARTITIONS),
            name="streams",
            storage_options=place.options,
            commit_properties=properties,
        )
        return
    # The package can remove single objects only by adding all others again.
    actions, mode = (change.objects, "overwrite") if change.removed else (change.added, "append")
    table.create_write_transaction(
        _actions(actions),
        mode=mode,
        schema=schema,
        partition_by=list(_PARTITIONS),
        commit_properties=properties,
    )


def _actions(parts: Mapping[str, Part]) -> list[Any]:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - checked by _package

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
    return [str(path) for path in arrow().table(table.get_add_actions()).column("path").to_pylist()]


def _package() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "deltalake is not installed", hint="Install it: `pip install 'fourfold[delta]'`."
        ) from error
    return deltalake


job = DeltaLog()
