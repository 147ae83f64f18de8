"""The job `verify`: check that every file of every store agrees with its log.

The rules are those of the models (`space.verify()`, `sessions.verify()` and so on); here they are
distributed over Spark's workers, by file, and for large files by rule and key range. The job only
reads, also while writers run, and takes no lock of theirs. Problems are its result, so a damaged
file is not an error of the run: it is listed in the report.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, FourfoldError, InvalidInput
from fourfold.pipeline import verify_tasks
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.models import DEFAULT_MODEL, get_verifier
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.verify_tasks import Unit, VerifyProblem

_NOWHERE: Final = "the report of the run"


class VerifyResult(NamedTuple):
    """The outcome of the tasks: their number, and the peak memory of a worker."""

    tasks: int
    worker_bytes: int


class Verify(Job):
    """Verify spaces, or the data of another model."""

    name = "verify"
    summary = "Check every space: log, hashes, heads, snapshots, references, pages."
    explanation = (
        "With --model, the data of another model; with --objects, published streams. "
        "Replays every entity and compares it with the snapshots and heads, recomputes every "
        "digest and hash, looks for dangling references and missing seqs, and runs SQLite's own "
        "check. "
        "Reads only, also while writers run. Exits with 8 if anything is damaged."
    )
    options = (
        model_option("verify"),
        Option("roots", "Check the stores that match this pattern instead of ROOT."),
        Option("space", "Check only the space with this DID."),
        Option("objects", "Streams: check the published objects at this URL instead of ROOT."),
        Option("into", "A file for all problems, as JSON lines; it is replaced.", kind="path"),
    )

    def target(self, context: Context) -> str:
        """Return the selected data and the output file."""
        parts = [context.target_of("roots", "space", "objects"), _into(context)]
        return "\n".join(parts).strip()

    def plan(self, context: Context) -> Plan:
        """List the files or objects."""
        if context.options["objects"] is not None:
            return _plan_of_objects(context)
        _check_into(context)
        files = context.files()
        return Plan(
            output=_into(context) or _NOWHERE,
            ranges=tuple(Range(file.path, 0, file.bytes) for file in files),
            facts={"files": len(files), "bytes": sum(file.bytes for file in files)}
            | {"state": _stamp(files)},
            empty=not files,
            files=tuple(files),
        )

    def run(self, context: Context, plan: Plan) -> VerifyResult:
        """Apply the rules.

        Tasks that a killed run had finished are not repeated: the plan, and so this work, is only
        valid while no file changes.
        """
        tasks = verify_tasks.group_units(_units(context, plan))
        folder = context.staging
        verify_tasks.sweep_partial(folder)
        pending = [
            number
            for number in range(len(tasks))
            if not verify_tasks.result_path(folder, number).exists()
        ]
        peak = 0
        if pending:
            peak = self._check(context, [tasks[number] for number in pending], pending, folder)
        return VerifyResult(len(tasks), peak)

    @staticmethod
    def _check(
        context: Context, work: Sequence[Sequence[Unit]], numbers: Sequence[int], folder: Path
    ) -> int:
        """Run the tasks; return the peak memory of a worker."""
        spark = context.spark
        # One row in each partition: the index of a pending task.
        rows = spark.range(0, len(work), 1, len(work))
        worker = verify_tasks.VerifyTask(work, folder, numbers)

        def check(batches: Iterable[Any]) -> Iterator[Any]:
            return worker(batches)

        with context.spark_progress("checking"):
            done = rows.mapInArrow(check, verify_tasks.COLUMNS).collect()
        return max(int(row["peak_bytes"]) for row in done)

    def commit(self, context: Context, plan: Plan, result: VerifyResult) -> Report:
        """Collect the problems of all tasks."""
        shown: list[VerifyProblem] = []
        damaged: set[str] = set()
        total = 0
        into = _into(context)
        partial = Path(f"{into}.{os.getpid()}.partial") if into else None
        file = partial.open("wb") if partial else None
        try:
            for problem in verify_tasks.iter_results(context.staging, result.tasks):
                total += 1
                damaged.add(problem.file)
                if len(shown) < limits.VERIFY_FAULTS_SHOWN:
                    shown.append(problem)
                if file is not None:
                    file.write(msgspec.json.encode(problem) + b"\n")
        finally:
            if file is not None:
                file.close()
        if partial is not None:
            partial.replace(into)
        files = plan.facts["files"]
        facts = {
            "files": files,
            "sound": files - len(damaged),
            "damaged": sorted(damaged)[: limits.VERIFY_FAULTS_SHOWN],
            "faults": total,
            "worker_bytes": result.worker_bytes,
            "first": [msgspec.to_builtins(problem) for problem in shown],
        }
        return Report(
            rows_in=files,
            rows_out=total,
            facts=facts,
            sentence=_sentence(files, len(damaged), total),
            lines=tuple(f"{problem.file}: {problem.problem}" for problem in shown),
        )

    def verdict(self, facts: Mapping[str, Any]) -> FourfoldError | None:
        """Return CorruptData if there are problems."""
        if not facts.get("faults"):
            return None
        first = facts["first"][0]
        return CorruptData(
            f"{facts['faults']} problems; first: {first['file']}: {first['problem']}",
            hint="Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`.",
        )


def _units(context: Context, plan: Plan) -> list[Unit]:
    """Return the units of the files, or of published objects."""
    if context.options["objects"] is not None:
        from fourfold.pipeline.streams.verify import object_units  # noqa: PLC0415 - rarely used

        return object_units(_address(context), plan.inputs)
    units = get_verifier(context.options["model"]).units
    return [unit for file in plan.files for unit in units(file)]


def _plan_of_objects(context: Context) -> Plan:
    options = context.options
    if options["roots"] or options["space"] or options["model"] not in {DEFAULT_MODEL, "streams"}:
        raise InvalidInput(
            "--objects cannot be combined with --roots, --space or another model than streams"
        )
    _check_into(context)
    from fourfold.pipeline.streams.verify import list_objects  # noqa: PLC0415 - rarely used

    url = _address(context)
    listing = list_objects(url)
    return Plan(
        output=_into(context) or _NOWHERE,
        ranges=(Range(url, 0, listing.bytes),),
        facts={"files": listing.objects, "bytes": listing.bytes, "state": listing.state},
        empty=not listing.objects,
        inputs=listing,
    )


def _address(context: Context) -> str:
    from fourfold.pipeline.streams.published import address  # noqa: PLC0415 - rarely used

    return address(context.options["objects"])


def _into(context: Context) -> str:
    into = context.options["into"]
    return "" if into is None else str(Path(into).absolute())


def _check_into(context: Context) -> None:
    into = _into(context)
    if into and not Path(into).parent.is_dir():
        raise InvalidInput(f"{into}: the folder of the report does not exist")


def _stamp(files: Sequence[StoreFile]) -> str:
    """Return a digest that changes whenever a file changes."""
    digest = hashlib.sha256()
    for file in files:
        for name in (file.path, f"{file.path}-wal"):
            try:
                status = os.stat(name)  # noqa: PTH116 - it runs for every file
            except FileNotFoundError:
                continue
            if status.st_size:
                # Readers may leave an empty WAL, which is irrelevant.
                digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _sentence(files: int, damaged: int, faults: int) -> str:
    if not faults:
        return f"{files} files checked, all sound"
    return f"{files} files checked, {damaged} of them damaged: {faults} problems"


job = Verify()
