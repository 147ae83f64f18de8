"""`fourfold publish`: publish new data to an object store, and show the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from click.shell_completion import CompletionItem

from fourfold.cli.options import KeepOption, objects_option, published_store, root_argument
from fourfold.cli.options import command as _command
from fourfold.cli.output import Output, counted, size
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fourfold.archive.restore_points import PointInfo
    from fourfold.archive.subject import DatabaseStatus
    from fourfold.cli.output import Output
    from fourfold.errors import FourfoldError
    from fourfold.models.streams.archive.maintenance import MaintenanceResult
    from fourfold.store import Store
    from fourfold.store.publish import PublishReport
    from fourfold.store.retention import CollectReport, MergeReport
    from fourfold.store.table_maintenance import CompactionReport
    from fourfold.wire.store import ArchiveTableRow


class RetiredEntry(Protocol):
    """An object that was or would be deleted, of a stream or of a database."""

    @property
    def key(self) -> str:
        """Key of the object."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the object."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class PublishOutcome:
    """The results of one call; None for steps that were not requested."""

    report: PublishReport
    merged: MergeReport | None = None
    compacted: MaintenanceResult | None = None
    indexed: MaintenanceResult | None = None
    companions: MaintenanceResult | None = None
    collected: CollectReport | None = None
    retired: list[RetiredEntry] | None = None

    def merges(self) -> list[CompactionReport]:
        """Compactions of all models."""
        return [*self.report.merged, *([] if self.merged is None else self.merged.merged)]

    def failures(self) -> Iterator[tuple[str, FourfoldError]]:
        """Yield each failure once, even if several steps met it."""
        failures: dict[str, FourfoldError] = {}
        parts = (self.report, self.merged, self.collected)
        for part in parts:
            for name, error in ({} if part is None else part.failures).items():
                failures.setdefault(name, error)
        for result in (self.compacted, self.indexed, self.companions):
            for name, error in ({} if result is None else result.failures).items():
                failures.setdefault(f"streams/{name}", error)
        yield from failures.items()

    def raise_if_failed(self) -> None:
        """Raise the first error of a database."""
        for _, error in self.failures():
            raise error


def show(out: Output, store: Store, outcome: PublishOutcome) -> None:
    """Print the outcome of a publication."""
    report = outcome.report
    streams = report.streams
    unpublished = 0 if streams is None else store.archive.standing().unpublished_records
    if out.as_json:
        out.document(_document(store, outcome, unpublished))
        return
    if report.published or report.unchanged:
        rows = sum(database.rows for database in report.published)
        held = sum(database.bytes for database in report.published)
        out.line(
            f"published {counted(len(report.published), 'database')}: {counted(rows, 'row')}, "
            f"{size(held)}; {report.unchanged} unchanged"
        )
    if streams is not None:
        out.line(
            f"published {counted(len(streams.published), 'manifest')}, "
            f"{counted(streams.sealed, 'new segment')}; "
            f"{counted(unpublished, 'record')} not published"
        )
    if report.point is not None:
        out.line(f"point {report.point.id}")
    _show_maintenance(out, outcome)
    if outcome.retired is not None:
        out.line(_objects_line("deleted", outcome.retired))
    for name, error in outcome.failures():
        out.line(f"{name}: {error.message}")


def _show_maintenance(out: Output, outcome: PublishOutcome) -> None:
    for merge in outcome.merges():
        files = counted(merge.files, "file")
        out.line(f"compacted {files} of {merge.name} into {merge.written}")
    if outcome.compacted is not None and outcome.compacted.compacted:
        segments = counted(outcome.compacted.segments, "segment")
        out.line(f"compacted {segments} into {outcome.compacted.compacted}")
    if outcome.indexed is not None and outcome.indexed.runs:
        segments = counted(outcome.indexed.segments, "segment")
        out.line(f"indexed {segments} in {counted(outcome.indexed.runs, 'new run')}")
    if outcome.companions is not None and outcome.companions.companions:
        out.line(f"built {counted(outcome.companions.companions, 'search companion')}")
    if outcome.collected is not None and outcome.collected.points:
        out.line(f"removed {counted(outcome.collected.points, 'point')}")


def _document(store: Store, outcome: PublishOutcome, unpublished: int) -> dict[str, Any]:
    report, streams = outcome.report, outcome.report.streams
    return {
        "root": str(store.root),
        "point": None if report.point is None else report.point.id,
        "databases": [database._asdict() for database in report.published],
        "unchanged": report.unchanged,
        "segments": 0 if streams is None else streams.sealed,
        "manifests": 0 if streams is None else len(streams.published),
        "unpublished_records": unpublished,
        "merged": [merge._asdict() for merge in outcome.merges()],
        "compacted": _maintenance_json(outcome.compacted, "segments", "compacted"),
        "indexed": _maintenance_json(outcome.indexed, "segments", "runs"),
        "companions": _maintenance_json(outcome.companions, "companions"),
        "given_up": _removed_json(outcome.collected),
        "deleted_objects": len(outcome.retired or []),
        "deleted_bytes": sum(info.size_bytes for info in outcome.retired or []),
        "failures": {name: error.as_dict() for name, error in outcome.failures()},
    }


def _maintenance_json(result: MaintenanceResult | None, *counts: str) -> dict[str, Any] | None:
    if result is None:
        return None
    return {"streams": len(result.streams), **{name: getattr(result, name) for name in counts}}


def _removed_json(collected: CollectReport | None) -> dict[str, Any] | None:
    return None if collected is None else {"points": collected.points}


def show_points(out: Output, points: list[PointInfo]) -> None:
    """Print restore points."""
    fields = ("id", "at", "databases", "streams", "restored")
    out.rows(
        {"points": [{name: getattr(point, name) for name in fields} for point in points]},
        "points",
        {
            "point": "id",
            "published at": "at",
            "databases": "databases",
            "streams": "streams",
            "continued from": "restored",
        },
        fields=fields,
    )


def show_tables(out: Output, tables: list[ArchiveTableRow]) -> None:
    """Show the tables of an archive."""
    fields = ("name", "version", "files", "rows", "bytes", "folder", "changed_ms")
    out.rows(
        {"tables": [{name: getattr(table, name) for name in fields} for table in tables]},
        "tables",
        {name: name for name in fields[:-1]},
        fields=fields,
        empty="nothing is published as tables yet",
    )


def show_status(
    out: Output,
    databases: Sequence[DatabaseStatus],
    unpublished: int | None,
    retired: Sequence[RetiredEntry],
    collected: CollectReport | None,
) -> None:
    """Show the publish status; `unpublished` is None if streams were not requested."""
    if out.as_json:
        out.document(
            {
                "databases": [database._asdict() for database in databases],
                "unpublished_records": unpublished or 0,
                "would_give_up": _removed_json(collected),
                "would_delete": [info._asdict() for info in retired],
            }
        )
        return
    if databases:
        out.table(
            ("database", "published", "newest", "changes"),
            [(row.name, row.published, row.newest, row.changes) for row in databases],
        )
    if unpublished is not None:
        out.line(f"{counted(unpublished, 'stream record')} not published")
    if collected is not None and collected.points:
        out.line(f"would remove {counted(collected.points, 'point')}")
    out.line(_objects_line("would delete", retired))
    if retired:
        out.table(("object", "size"), [(info.key, size(info.size_bytes)) for info in retired])


def _objects_line(verb: str, objects: Sequence[RetiredEntry]) -> str:
    held = size(sum(info.size_bytes for info in objects))
    return f"{verb} {counted(len(objects), 'object')}, {held}"


class ModelName(click.ParamType):  # type: ignore[type-arg]
    """The name of a model of the registry."""

    name = "MODEL"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names of the models, for the help."""
        del param, ctx
        return f"[{'|'.join(_model_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of a model; fail for an unknown one."""
        if value not in _model_names():
            self.fail(f"{value!r} is not one of {', '.join(_model_names())}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the models that begin with a prefix."""
        del ctx, param
        return [CompletionItem(name) for name in _model_names() if name.startswith(incomplete)]


def _model_names() -> list[str]:
    from fourfold.models.model import all_models  # noqa: PLC0415 - imports every model

    return [model.name for model in all_models()]


@_command("publish", rows=True)
@root_argument(required=True)
@objects_option
@click.option(
    "--model",
    "models",
    type=ModelName(),
    multiple=True,
    help="Only this model; repeatable.",
)
@click.option("--points", is_flag=True, help="Publish nothing; list the restore points.")
@click.option("--tables", is_flag=True, help="Publish nothing; list the tables of the archive.")
@click.option("--compact", is_flag=True, help="Then compact small objects into larger ones.")
@click.option("--index", is_flag=True, help="Then index the routing keys of published records.")
@click.option("--companions", is_flag=True, help="Then build the search companions of streams.")
@click.option("--collect", is_flag=True, help="Then delete unreferenced objects.")
@click.option(
    "--keep",
    multiple=True,
    type=KeepOption("points"),
    help="With --collect: restore points to keep, by number or by age; the others are removed.",
)
@click.option(
    "--drop-format-1",
    is_flag=True,
    help="Then delete the objects of format 1, if the archive tables have everything.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing; show the publish status, and what --collect would delete.",
)
def command(out: Output, root: Path, *, objects: str | None, **options: Any) -> None:
    """Publish new data of every space, the sessions, the graphs and the streams of ROOT.

    Each run creates a restore point for `fourfold bootstrap`. Published data can be read without
    this store. A server started with --objects publishes automatically.
    """
    chosen = options["models"] or _model_names()
    keep = _parse_keep(options["keep"])
    if options["keep"] and not (options["collect"] or options["dry_run"]):
        raise click.UsageError("--keep requires --collect or --dry-run.")
    if out.as_rows and not (options["points"] or options["tables"]):
        raise click.UsageError(f"--{out.format} requires --points or --tables.")
    with published_store(root, objects) as store:
        if options["points"]:
            show_points(out, store.points())
        elif options["tables"]:
            show_tables(out, store.archive_tables())
        elif options["dry_run"]:
            _show_status(out, store, chosen, keep)
        else:
            _publish_and_maintain(out, store, chosen, keep, options)


def _publish_and_maintain(
    out: Output,
    store: Store,
    chosen: Sequence[str],
    keep: tuple[int, float] | None,
    options: dict[str, Any],
) -> None:
    outcome = PublishOutcome(_publish(out, store, chosen))
    if options["compact"]:
        _compact(store, chosen, outcome)
    if options["index"] and "streams" in chosen:
        outcome.indexed = store.archive.index()
    if options["companions"] and "streams" in chosen:
        outcome.companions = store.archive.build_companions()
    if options["collect"]:
        _collect(store, chosen, keep, outcome)
    if options["drop_format_1"]:
        outcome.raise_if_failed()
        outcome.retired = [*(outcome.retired or []), *_drop_format_1(out, store)]
    show(out, store, outcome)
    outcome.raise_if_failed()


def _parse_keep(bounds: tuple[int | float, ...]) -> tuple[int, float] | None:
    """Return the points to keep, by number and by age; None if the settings decide."""
    numbers = [value for value in bounds if isinstance(value, int)]
    ages = [value for value in bounds if isinstance(value, float)]
    if len(numbers) > 1 or len(ages) > 1:
        raise InvalidInput("--keep: at most one number and one age")
    if not bounds:
        return None
    return (numbers or [0])[0], (ages or [0.0])[0]


def _compact(store: Store, models: Sequence[str], outcome: PublishOutcome) -> None:
    from fourfold.store import retention  # noqa: PLC0415 - imports every model

    if set(models) - {"streams"}:
        outcome.merged = retention.merge(store)
    if "streams" in models:
        outcome.compacted = store.archive.compact()


def _collect(
    store: Store, models: Sequence[str], keep: tuple[int, float] | None, outcome: PublishOutcome
) -> None:
    outcome.retired = []
    if set(models) - {"streams"}:
        outcome.collected = _collected(store, keep, dry_run=False)
        outcome.retired += outcome.collected.deleted
    if "streams" in models:
        outcome.retired += store.archive.collect()


def _drop_format_1(out: Output, store: Store) -> Sequence[RetiredEntry]:
    from fourfold.store import format_one  # noqa: PLC0415 - imports every model

    with out.progress("comparing") as advance:
        return format_one.drop_format_1(store, advance)


def _collected(store: Store, keep: tuple[int, float] | None, *, dry_run: bool) -> CollectReport:
    from fourfold.store import retention  # noqa: PLC0415 - imports every model

    limits = None if keep is None else retention.Keep(points=keep[0], for_s=keep[1])
    return retention.collect(store, keep=limits, dry_run=dry_run)


def _publish(out: Output, store: Store, models: Sequence[str]) -> PublishReport:
    from fourfold.store import publish  # noqa: PLC0415 - imports every model

    with out.progress("publishing") as advance:
        return publish.publish(store, models, advance)


def _show_status(
    out: Output, store: Store, models: Sequence[str], keep: tuple[int, float] | None
) -> None:
    from fourfold.store import publish  # noqa: PLC0415 - imports every model

    databases: list[DatabaseStatus] = publish.standings(store, models)
    retired: list[RetiredEntry] = []
    unpublished, collected = 0, None
    if set(models) - {"streams"}:
        collected = _collected(store, keep, dry_run=True)
        retired += collected.deleted
    if "streams" in models:
        retired += store.archive.collect(dry_run=True)
        unpublished = store.archive.standing().unpublished_records
    show_status(out, databases, unpublished if "streams" in models else None, retired, collected)
    for error in {} if collected is None else collected.failures.values():
        raise error
