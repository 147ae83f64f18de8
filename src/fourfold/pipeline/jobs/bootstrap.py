"""The job `bootstrap`: build the streams of a new store from manifests with Spark.

    driver      lists the objects
    workers     read and check the manifests, and with `contents` every object
    driver      creates the streams, thousands in one transaction

The result equals that of `fourfold bootstrap` for streams. It can be run again: existing streams
are not changed, so a killed run continues with the missing ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fourfold import errors, limits
from fourfold.archive.manifest import MANIFEST, ROOT, decode, encode
from fourfold.errors import FourfoldError
from fourfold.models.streams.archive import bootstrapper
from fourfold.models.streams.archive.bootstrapper import BootstrapReport, FoundManifest
from fourfold.objects import open_objects
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, pluralize
from fourfold.query.tables import arrow
from fourfold.retry import Retries
from fourfold.store import open_store
from fourfold.store.store import objects_url, remember

MANIFEST_TASK_READERS: Final = 8
"""Manifests that one task reads in parallel."""

_COLUMNS: Final = (
    "key string, data binary, version string, size bigint, kind string, problem string"
)
_SHOWN: Final = 100


class Bootstrap(Job):
    """Build the streams of a store."""

    name = "bootstrap"
    summary = "Build the streams of a new store from the manifests in an object store."
    explanation = (
        "Unpublished records are lost and listed. It can be run again: existing streams are not "
        "changed. The store publishes these streams from then on; the previous node is fenced."
    )
    options = (
        Option("objects", "URL of the objects; default: `objects.url` of the store."),
        Option("contents", "Check every object against its digest.", kind="flag", default=False),
    )
    makes_store = True

    def plan(self, context: Context) -> Plan:
        """List the manifests."""
        url = objects_address(context)
        sizes = _list_sizes(url)
        keys = _manifests(sizes)
        return Plan(
            output="the streams of the store",
            ranges=(Range(url, 0, len(keys)),),
            facts={"objects": url, "manifests": len(keys)},
            empty=not keys,
            inputs=sizes,
        )

    def run(self, context: Context, plan: Plan) -> BootstrapReport:
        """Read the manifests and create the streams."""
        remember(context.root, context.options["objects"])
        url = plan.facts["objects"]
        sizes = dict(plan.inputs)
        keys = _manifests(sizes)
        manifests, failures = _read(context, url, keys)
        for key in keys:
            del sizes[key]
        unclaimed = bootstrapper.unclaimed_of(manifests, sizes)
        with open_store(context.root) as store:
            streams = store.streams
            return bootstrapper.restore(
                streams.database,
                manifests,
                unclaimed,
                failures,
                now_ms=streams.clock(),
                progress=context.advance,
            )

    def commit(self, context: Context, plan: Plan, result: BootstrapReport) -> Report:
        """Report the result; the streams exist already."""
        del plan
        for name, error in result.failures.items():
            if not context.skip_bad:
                raise error
            context.skip(name, error.message)
        lost = sum(range_.records for range_ in result.lost)
        sentence = (
            f"restored {pluralize(len(result.restored), 'stream')} with "
            f"{pluralize(result.records, 'record')}"
        )
        if lost:
            sentence += f"; {pluralize(lost, 'record')} were not published and are lost"
        return Report(
            rows_in=len(result.restored) + len(result.present) + result.deleted,
            rows_out=len(result.restored),
            facts=_facts(result),
            sentence=sentence,
            lines=tuple(
                f"lost: {range_.stream} from {range_.first_offset} to {range_.next_offset}"
                for range_ in result.lost[:_SHOWN]
            ),
        )


def _facts(result: BootstrapReport) -> Mapping[str, Any]:
    return {
        "streams": len(result.restored),
        "present": len(result.present),
        "deleted": result.deleted,
        "records": result.records,
        "lost": [range_._asdict() for range_ in result.lost[:_SHOWN]],
        "unclaimed": len(result.unclaimed),
        "unclaimed_bytes": sum(entry.size_bytes for entry in result.unclaimed),
    }


def objects_address(context: Context) -> str:
    """Return the given URL of objects, or that of the store."""
    url = context.options["objects"]
    if url is not None:
        from fourfold.pipeline.streams.published import address  # noqa: PLC0415 - as Spark needs it

        return address(url)
    with open_store(context.root, mode="r") as store:
        return objects_url(store.root, store.settings)


def _list_sizes(url: str) -> dict[str, int]:
    with open_objects(url) as objects:
        infos = Retries().run(lambda: list(objects.list(f"{ROOT}/")))
    return {info.key: info.size for info in infos}


def _manifests(keys: Iterable[str]) -> list[str]:
    return [key for key in keys if key.endswith(f"/{MANIFEST}")]


def _read(
    context: Context, url: str, keys: Sequence[str]
) -> tuple[list[FoundManifest], dict[str, FourfoldError]]:
    """Return the manifests, and the errors of those that could not be read."""
    size = limits.MANIFESTS_PER_TASK
    tasks = [tuple(keys[at : at + size]) for at in range(0, len(keys), size)]
    worker = BootstrapRead(url, tasks, contents=bool(context.options["contents"]))

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    with context.spark_progress("reading"):
        rows = numbers.mapInArrow(read, _COLUMNS).collect()
    manifests: list[FoundManifest] = []
    failures: dict[str, FourfoldError] = {}
    kinds = {cls.kind: cls for cls in errors.tree()}
    for row in rows:
        if row["problem"] is not None:
            failures[row["key"]] = kinds[row["kind"]](row["problem"])
        else:
            manifest = decode(bytes(row["data"]), row["key"])
            manifests.append(FoundManifest(manifest, row["version"], row["size"]))
    return sorted(manifests, key=lambda item: item.manifest.name), failures


class BootstrapRead:
    """Worker function: reads the manifests of the tasks whose numbers it receives."""

    def __init__(self, url: str, tasks: Sequence[Sequence[str]], *, contents: bool) -> None:
        self._url = url
        self._tasks = tasks
        self._contents = contents

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        pa = arrow()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = [row for row in self._task(self._tasks[number]) if row is not None]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=_schema())

    def _task(self, keys: Sequence[str]) -> Iterator[dict[str, Any] | None]:
        with (
            open_objects(self._url) as objects,
            ThreadPoolExecutor(MANIFEST_TASK_READERS) as pool,
        ):
            yield from pool.map(lambda key: self._row(objects, key), keys)

    def _row(self, objects: Any, key: str) -> dict[str, Any] | None:
        read = bootstrapper.read_one(objects, Retries(), key)
        if read is None:
            return None
        if isinstance(read, FourfoldError):
            return {"key": key, "kind": read.kind, "problem": read.message}
        if self._contents:
            from fourfold.pipeline.streams.verify import problems_of  # noqa: PLC0415 - optional

            for problem in problems_of(objects, read.manifest):
                return {"key": key, "kind": errors.CorruptData.kind, "problem": problem}
        return {
            "key": key,
            "data": encode(read.manifest),
            "version": read.version,
            "size": read.size,
        }


def _schema() -> Any:
    pa = arrow()
    types = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    pairs = [column.split() for column in _COLUMNS.split(", ")]
    return pa.schema([pa.field(name, types[kind]) for name, kind in pairs])


job = Bootstrap()
