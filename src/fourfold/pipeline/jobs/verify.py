"""`verify`: whether every file of every store is what its log says.

The rules are the model's own (those of `space.verify()`, `sessions.verify()` and so on); here they
are spread over Spark's workers, by file, and for large files by rule and by stretches of keys. The
job reads, beside running writers too, and takes no lock of theirs. What it finds is its result, so
a damaged file is never an error of the run: it is named in the report, and so is every other one.
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
from fourfold.pipeline.cut import StoreFile
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.tables import DEFAULT_MODEL, load_part
from fourfold.pipeline.verify_tasks import Unit, VerifyProblem

_NOWHERE: Final = "the report of the run"


class VerifyResult(NamedTuple):
    """What is known when the tasks are through: their number, and the memory of the largest."""

    tasks: int
    worker_bytes: int


class Verify(Job):
    """Check spaces, or what another model keeps."""

    name = "verify"
    summary = "Check every space: log, hashes, heads, snapshots, references, pages."
    explanation = (
        "With --model, what another model keeps instead; with --objects, what is published. "
        "Replays every entity and compares it with the snapshots and heads, makes every digest and "
        "hash again, looks for dangling references and missing seqs, and runs SQLite's own check. "
        "Reads only, also beside running writers. Exits with 8 when something is damaged."
    )
    options = (
        model_option("verify"),
        Option("roots", "Check the stores that match this pattern instead of ROOT."),
        Option("space", "Check only the space with this DID."),
        Option("objects", "Streams: check what is published there instead of the file of ROOT."),
        Option("into", "A file for all faults, as lines of JSON; it is replaced.", kind="path"),
    )

    def target(self, context: Context) -> str:
        asked = [context.target_of("roots", "space", "objects"), _into(context)]
        return "\n".join(asked).strip()

    def plan(self, context: Context) -> Plan:
        if context.options["objects"] is not None:
            return _plan_of_objects(context)
        found = _found(context)
        return Plan(
            output=_into(context) or _NOWHERE,
            ranges=tuple(Range(file.path, 0, file.bytes) for file in found),
            facts={"files": len(found), "bytes": sum(file.bytes for file in found)}
            | {"state": _stamp(found)},
            empty=not found,
        )

    def run(self, context: Context, plan: Plan) -> VerifyResult:
        """Apply the rules. Tasks that a killed run had finished are not done again: the
        plan, and so this work, holds only while no file changes.
        """
        del plan
        work = verify_tasks.tasks(_units(context))
        folder = context.staging
        verify_tasks.sweep_partial(folder)
        waiting = [
            number
            for number in range(len(work))
            if not verify_tasks.result_path(folder, number).exists()
        ]
        peak = 0
        if waiting:
            peak = self._check(context, [work[number] for number in waiting], waiting, folder)
        return VerifyResult(len(work), peak)

    @staticmethod
    def _check(
        context: Context, work: Sequence[Sequence[Unit]], numbers: Sequence[int], folder: Path
    ) -> int:
        """Let Spark do it; the most memory that a worker had."""
        spark = context.spark
        # One row in each partition: the place of a task in the list of those that wait.
        rows = spark.range(0, len(work), 1, len(work))
        worker = verify_tasks.VerifyTask(work, folder, numbers)

        def check(batches: Iterable[Any]) -> Iterator[Any]:
            return worker(batches)

        with context.spark_progress("checking"):
            done = rows.mapInArrow(check, verify_tasks.COLUMNS).collect()
        return max(int(row["peak_bytes"]) for row in done)

    def commit(self, context: Context, plan: Plan, result: VerifyResult) -> Report:
        shown: list[VerifyProblem] = []
        damaged: set[str] = set()
        total = 0
        into = _into(context)
        partial = Path(f"{into}.{os.getpid()}.partial") if into else None
        file = partial.open("wb") if partial else None
        try:
            for found in verify_tasks.read(context.staging, result.tasks):
                total += 1
                damaged.add(found.file)
                if len(shown) < limits.VERIFY_FAULTS_SHOWN:
                    shown.append(found)
                if file is not None:
                    file.write(msgspec.json.encode(found) + b"\n")
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
            "first": [msgspec.to_builtins(each) for each in shown],
        }
        return Report(
            rows_in=files,
            rows_out=total,
            facts=facts,
            sentence=_sentence(files, len(damaged), total),
            lines=tuple(f"{each.file}: {each.problem}" for each in shown),
        )

    def verdict(self, facts: Mapping[str, Any]) -> FourfoldError | None:
        if not facts.get("faults"):
            return None
        first = facts["first"][0]
        return CorruptData(
            f"{facts['faults']} faults; first: {first['file']}: {first['problem']}",
            hint="Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`.",
        )


def _units(context: Context) -> list[Unit]:
    """The work that files are, or what is published."""
    if context.options["objects"] is not None:
        url, streams = _address(context), load_part("streams", "verify")
        return list(streams.object_units(url, streams.list_objects(url)))
    units = load_part(context.options["model"], "verify").units
    return [unit for file in _found(context) for unit in units(file)]


def _plan_of_objects(context: Context) -> Plan:
    options = context.options
    if options["roots"] or options["space"] or options["model"] not in {DEFAULT_MODEL, "streams"}:
        raise InvalidInput("--objects checks published streams: leave out --roots and --space")
    _check_into(context)
    url = _address(context)
    found = load_part("streams", "verify").list_objects(url)
    return Plan(
        output=_into(context) or _NOWHERE,
        ranges=(Range(url, 0, found.bytes),),
        facts={"files": found.objects, "bytes": found.bytes, "state": found.state},
        empty=not found.objects,
    )


def _address(context: Context) -> str:
    from fourfold.pipeline.streams.published import address  # noqa: PLC0415 - few ask for it

    return address(context.options["objects"])


def _into(context: Context) -> str:
    into = context.options["into"]
    return "" if into is None else str(Path(into).absolute())


def _found(context: Context) -> list[StoreFile]:
    _check_into(context)
    return context.files()


def _check_into(context: Context) -> None:
    into = _into(context)
    if into and not Path(into).parent.is_dir():
        raise InvalidInput(f"{into}: there is no such folder to put the report into")


def _stamp(found: Sequence[StoreFile]) -> str:
    """Another text whenever one of the files has changed."""
    digest = hashlib.sha256()
    for file in found:
        for name in (file.path, f"{file.path}-wal"):
            try:
                facts = os.stat(name)  # noqa: PTH116 - it runs for every file
            except FileNotFoundError:
                continue
            if facts.st_size:
                # Readers leave an empty log behind, which says nothing.
                digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _sentence(files: int, damaged: int, faults: int) -> str:
    if not faults:
        return f"{files} files checked, all sound"
    return f"{files} files checked, {damaged} of them damaged: {faults} faults"


job = Verify()
