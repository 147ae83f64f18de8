"""The interface of a job: plan, run, commit, report.

    plan      examines the inputs, once, and determines the work: on the driver, no writes
    run       does the work with Spark, invisible to readers (`context.staging`)
    commit    makes the result visible, all or nothing; committing twice changes nothing
    report    describes what was done

The runner (`fourfold.pipeline.jobs.run`) adds to every job: a row in the store's table of runs; the
watermark up to which each input was processed, raised only after the commit; one run at a time for
a job and target; a killed run is detected by the next one, which resumes its work (`context.work`,
`context.staging`, `context.finished`) if the plan is still the same.

A job must guarantee: `plan` reads from the watermark and bounds every input; `run` can be repeated;
`commit` is atomic and detects its own work. Then a kill at any time leaves the old output readable,
and the next run completes it.

    class Count(Job):
        name = "count"
        summary = "Count the commits of every space."
        options = (Option("into", "The file to write.", kind="path", required=True),)

        def target(self, context): return str(context.options["into"])
        def plan(self, context): return Plan(output=..., ranges=(Range(did, after, upto), ...))
        def run(self, context, plan): return context.spark.read.format("fourfold")...count()
        def commit(self, context, plan, result): ...; return Report(rows_in=result, rows_out=1)

`Rounds` stores the rounds of an iterative job, each written before the next one begins, so that
plans stay small and a killed run continues with its last round. Progress is reported to an
`advance(label, done, total)` callback; the command line draws a bar on a terminal.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import msgspec

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline import store_files
from fourfold.pipeline.cut import Cut
from fourfold.pipeline.models import DEFAULT_MODEL, Part, model_names, model_tables
from fourfold.pipeline.scratch import staging_of
from fourfold.pipeline.store_files import StoreFile

SPARK_PROGRESS_S: Final = 0.25

Progress = Callable[[str, int, int], None]
"""Called with a label, the steps done, and the total steps."""


def ignore_progress(_label: str, _done: int, _total: int) -> None:
    """Do nothing; the default progress callback."""


@contextmanager
def report_progress(spark: Any, label: str, advance: Progress) -> Iterator[None]:
    """Report the tasks of Spark's running stages while the block runs.

    A Spark Connect session has no status tracker; then only the label is reported.
    """
    if advance is ignore_progress:
        yield
        return
    advance(label, 0, 0)
    tracker = _tracker(spark)
    if tracker is None:
        yield
        return
    stopped = threading.Event()
    watcher = threading.Thread(
        target=_watch,
        args=(tracker, label, advance, stopped),
        name="fourfold-progress",
        daemon=True,
    )
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()


def _tracker(spark: Any) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a Connect session refuses in its own way; a bar is optional
        return None


def _watch(tracker: Any, label: str, advance: Progress, stopped: threading.Event) -> None:
    while not stopped.wait(SPARK_PROGRESS_S):
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                total += info.numTasks
        if total:
            advance(label, done, total)


OptionKind = Literal["text", "number", "flag", "path", "address"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a job: `--name` on the command line, `name` with `-` as `_` in Python."""

    name: str
    help: str
    kind: OptionKind = "text"
    default: Any = None
    required: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name in Python."""
        return self.name.replace("-", "_")


def model_option(part: Part) -> Option:
    """Return the option `--model` of a job, with the models that support it."""
    return Option(
        "model", "The model to process.", default=DEFAULT_MODEL, choices=model_names(part)
    )


class Range(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one input: the positions after `after` until `upto`.

    `source` is the stable name of the input, for a space its DID; positions are its seqs. With the
    `file_id` of the input, a file that is created again under its name is another input.
    """

    source: str
    after: int
    upto: int
    file_id: str = ""

    @property
    def watermark(self) -> str:
        """The name of the watermark of the input."""
        return watermark_name(self.source, self.file_id)


def watermark_name(source: str, file_id: str = "") -> str:
    """Return the name of the watermark of an input, which is that of one file if it has an id."""
    return f"{source}#{file_id}" if file_id else source


class Plan(msgspec.Struct, frozen=True):
    """The work of a run.

    `empty` ends the run at once, without Spark. `facts` are shown by `--dry-run` and are part of
    the identity of a plan; so they must be JSON values that do not change from run to run.

    The inputs are examined once, by `plan`, which passes what it found to `run`: `cut`, `files` or
    `inputs`. So both see the same state, whatever is written meanwhile.
    """

    output: str
    ranges: tuple[Range, ...] = ()
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    empty: bool = False
    cut: Cut = Cut(())
    """The cut of the files to read."""
    files: tuple[StoreFile, ...] = ()
    """The files, for a job that needs no cut."""
    inputs: Any = None
    """Inputs of other kinds, such as a list of objects."""

    @property
    def key(self) -> str:
        """A digest that is equal for equal work, so that a killed run can be resumed.

        Equal ranges of a file that was created again are other work.
        """
        files = sorted((bound.path, bound.file_id) for bound in self.cut.bounds)
        encoded = msgspec.json.encode(
            (self.output, sorted(self.ranges, key=_by_source), self.facts, files), order="sorted"
        )
        return hashlib.sha256(encoded).hexdigest()[:32]

    def summary(self, limit: int = 100) -> dict[str, Any]:
        """Return the input as stored in the row of the run: totals and the first ranges."""
        return {
            "sources": len(self.ranges),
            "positions": sum(range_.upto - range_.after for range_ in self.ranges),
            "ranges": [msgspec.to_builtins(range_) for range_ in self.ranges[:limit]],
        }


def _by_source(range_: Range) -> tuple[str, int, int]:
    return range_.source, range_.after, range_.upto


class Report(msgspec.Struct, frozen=True):
    """The outcome of a run. `facts` are the job's own figures, as JSON values."""

    rows_in: int = 0
    rows_out: int = 0
    output: str | None = None
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sentence: str = ""
    """A one-line summary; generated from the row counts if empty."""
    lines: tuple[str, ...] = ()
    """Further lines of output."""


class SkippedFile(msgspec.Struct, frozen=True):
    """An input that was skipped, and the reason."""

    source: str
    problem: str


@dataclass(slots=True)
class Context:
    """The environment of a job, created by the runner."""

    root: Path
    options: Mapping[str, Any]
    watermark: Mapping[str, int]
    """The position up to which earlier runs into this target processed each input, by its name."""
    work: str
    """The id of this work: a new one, or that of the killed run that is resumed."""
    open_session: Callable[[], Any]
    skip_bad: bool = False
    dry_run: bool = False
    advance: Progress = ignore_progress
    skipped: list[SkippedFile] = field(default_factory=list)
    finished: dict[str, Any] = field(default_factory=dict)
    """The completed steps of this work by name, with their data."""
    save_step: Callable[[str, Any], None] | None = None
    _session: Any = None

    @property
    def spark(self) -> Any:
        """The Spark session, started on first use."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    @property
    def staging(self) -> Path:
        """A folder for uncommitted results; the same when the work is resumed.

        It is created on first use, and removed after a successful run.
        """
        folder = staging_of(self.root, self.work)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def after(self, source: str, file_id: str = "") -> int:
        """Return the position after which to continue an input; 0 for a new one."""
        return self.watermark.get(watermark_name(source, file_id), 0)

    def files(self) -> list[StoreFile]:
        """Return the files of the selected model in this store or those that `roots` matches;
        `space` selects one space.
        """
        options, model = self.options, model_tables(self.options["model"])
        space = options.get("space")
        if space is not None and not model.spaces:
            raise InvalidInput(f"option --space is not supported by the model {model.model!r}")
        folders = store_files.find_stores(
            None if options["roots"] else str(self.root), options["roots"]
        )
        return store_files.find_files(folders, model, space)

    def target_of(self, *names: str) -> str:
        """Return a name for the target of a run, built from some options."""
        values = [str(self.options[name] or "") for name in names]
        if self.options["model"] != DEFAULT_MODEL:
            values.insert(0, self.options["model"])
        return "\n".join(values).strip()

    def skip(self, source: str, problem: str) -> None:
        """Record a skipped input. Only with `skip_bad`; raise the error otherwise."""
        self.skipped.append(SkippedFile(source, problem))

    def finish(self, step: str, data: Any = None) -> None:
        """Record durably that a step is done, with the data that later steps need."""
        self.finished[step] = data
        if self.save_step is not None:
            self.save_step(step, data)

    @contextmanager
    def spark_progress(self, label: str) -> Iterator[None]:
        """Report the progress of Spark's tasks while the block runs."""
        with report_progress(self.spark, label, self.advance):
            yield


class Job(ABC):
    """One kind of work over the history of a store."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `fourfold pipeline list`."""
    explanation: ClassVar[str] = ""
    """Further help for the command."""
    options: ClassVar[tuple[Option, ...]] = ()
    makes_store: ClassVar[bool] = False
    """True if the job creates the store in a folder that is not one yet."""

    def target(self, context: Context) -> str:
        """Return a stable name of what this run writes to. Watermarks and the limit of one run at a
        time apply to each target separately.
        """
        del context
        return ""

    @abstractmethod
    def plan(self, context: Context) -> Plan:
        """Return the work to do."""

    @abstractmethod
    def run(self, context: Context, plan: Plan) -> Any:
        """Do the work, invisible to readers; return what `commit` needs."""

    @abstractmethod
    def commit(self, context: Context, plan: Plan, result: Any) -> Report:
        """Make the result visible atomically."""

    def verdict(self, facts: Mapping[str, Any]) -> FourfoldError | None:
        """Return the error with which the command exits after a successful run, based on the
        figures of its report, or None.
        """
        del facts
        return None

    def report(self, report: Report) -> str:
        """Return the summary line of a report."""
        if report.sentence:
            return report.sentence
        return (
            f"{pluralize(report.rows_in, 'row')} read, {pluralize(report.rows_out, 'row')} written"
        )


def pluralize(count: int, noun: str) -> str:
    """Format a count with its noun: "1 row", "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Rounds:
    """The rounds of an iterative job, as Parquet with one schema, in the folder of a run."""

    def __init__(self, context: Context, name: str, schema: str) -> None:
        self._spark = context.spark
        self._staging = context.staging
        self._name = name
        self._schema = schema

    def folder(self, number: int) -> Path:
        """Return the folder of a round."""
        return self._staging / f"{self._name}-{number:05}"

    def get_or_write(self, number: int, make: Callable[..., Any], *args: Any) -> Any:
        """Return a round, computing and writing it unless it exists."""
        folder = self.folder(number)
        if not (folder / "_SUCCESS").exists():
            make(*args).write.mode("overwrite").parquet(str(folder))
        return self.read([number])

    def read(self, numbers: Iterable[int]) -> Any:
        """Return the rows of some rounds."""
        paths = [str(self.folder(number)) for number in numbers]
        return self._spark.read.schema(self._schema).parquet(*paths)
