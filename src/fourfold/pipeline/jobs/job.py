"""The one shape of a job: plan, run, commit, report.

    plan      looks at the inputs and says what there is to do: cheap, on the driver, no writes
    run       does the work with Spark, where no reader looks (`context.staging`)
    commit    makes the result visible, all or nothing; committing it twice changes nothing
    report    says what was done

What the runner (`fourfold.pipeline.jobs.run`) adds to every job: a row in the store's table of
runs; the watermark up to which each input was worked off, raised only after the commit; one run at
a time for one job and target; a killed run is recognised by the next one, which takes up its work
(`context.work`, `context.staging`, `context.finished`) when the plan is still the same.

So a job must be written such that these hold: `plan` reads from the watermark on and bounds every
input; `run` may be repeated; `commit` is atomic and recognises its own work. Then a kill at any
point leaves the old output readable, and the next run completes it.

    class Count(Job):
        name = "count"
        summary = "Count the commits of every space."
        options = (Option("into", "The file to write.", kind="path", required=True),)

        def target(self, context): return str(context.options["into"])
        def plan(self, context): return Plan(output=..., ranges=(Range(did, after, upto), ...))
        def run(self, context, plan): return context.spark.read.format("fourfold")...count()
        def commit(self, context, plan, result): ...; return Report(rows_in=result, rows_out=1)

Work that goes in rounds, each written down before the next one begins.

So the plan of a round does not grow with the rounds before it, and a run that was killed goes on
with the round that it was at: its folder is the same, and a round that is whole is not done again.

How far Spark is, told to whoever draws the bar.

Nothing is drawn here: the command line gives an `advance(label, done, total)` that draws on a
terminal and does nothing elsewhere.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline import cut, tables
from fourfold.pipeline.cut import FileBound, StoreFile
from fourfold.pipeline.scratch import staging_of
from fourfold.pipeline.tables import DEFAULT_MODEL

Advance = Callable[[str, int, int], None]
"""Called with what is being worked on, steps done, and steps in all."""


def silent(_label: str, _done: int, _total: int) -> None:
    """The progress that nobody watches."""


@contextmanager
def following(spark: Any, label: str, advance: Advance) -> Iterator[None]:
    """Report the tasks of Spark's running stages while the block runs.

    A session of Spark Connect has no status to ask for; then only the label is shown.
    """
    if advance is silent:
        yield
        return
    advance(label, 0, 0)
    tracker = _tracker(spark)
    if tracker is None:
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(tracker, label, advance, over), name="fourfold-progress", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _tracker(spark: Any) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a Connect session refuses in its own way; a bar is optional
        return None


def _watch(tracker: Any, label: str, advance: Advance, over: threading.Event) -> None:
    while not over.wait(limits.SPARK_PROGRESS_S):
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                total += info.numTasks
        if total:
            advance(label, done, total)


OptionKind = Literal["text", "number", "flag", "path"]


@dataclass(frozen=True, slots=True)
class Option:
    """What a job can be told: `--name` on the command line, `name` with `-` as `_` in Python."""

    name: str
    help: str
    kind: OptionKind = "text"
    default: Any = None
    required: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


def model_option(part: str) -> Option:
    """`--model`, for a job that several models have a part in."""
    return Option("model", "Whose data.", default=DEFAULT_MODEL, choices=tables.models_with(part))


class Range(msgspec.Struct, frozen=True):
    """A part of one input: what lies after the position `after`, up to and with `upto`.

    `source` is the stable name of the input, for a space its DID; positions are its seqs.
    """

    source: str
    after: int
    upto: int


class Plan(msgspec.Struct, frozen=True):
    """What a run is going to do.

    `empty` ends the run at once, without Spark. `facts` are shown by `--dry-run` and are part of
    what makes two plans the same; so they must hold nothing that changes from run to run, and only
    what JSON can.
    """

    output: str
    ranges: tuple[Range, ...] = ()
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    empty: bool = False
    marks: tuple[FileBound, ...] = ()
    """The cut that the ranges were taken from, for `run`: it is taken once."""

    @property
    def key(self) -> str:
        """The same for the same work, so that a killed run can be taken up where it was."""
        encoded = msgspec.json.encode(
            (self.output, sorted(self.ranges, key=_by_source), self.facts), order="sorted"
        )
        return hashlib.sha256(encoded).hexdigest()[:32]

    def shown(self, most: int = 100) -> dict[str, Any]:
        """The input as the row of the run keeps it: the newest of it, and how much there is."""
        return {
            "sources": len(self.ranges),
            "positions": sum(each.upto - each.after for each in self.ranges),
            "ranges": [msgspec.to_builtins(each) for each in self.ranges[:most]],
        }


def _by_source(each: Range) -> tuple[str, int, int]:
    return each.source, each.after, each.upto


class Report(msgspec.Struct, frozen=True):
    """What a run did. `facts` are the job's own figures, which JSON can hold."""

    rows_in: int = 0
    rows_out: int = 0
    output: str | None = None
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sentence: str = ""
    """What a person is told, in one sentence; made from the figures when it is empty."""
    lines: tuple[str, ...] = ()
    """What a person is told besides, line by line."""


class SkippedFile(msgspec.Struct, frozen=True):
    """An input that was left out because it is bad, and why."""

    source: str
    problem: str


@dataclass(slots=True)
class Context:
    """What a job works with. Made by the runner."""

    root: Path
    options: Mapping[str, Any]
    watermark: Mapping[str, int]
    """The position up to which each input was worked off by earlier runs into this target."""
    work: str
    """The name of this piece of work: a new one, or that of the killed run that is taken up."""
    open_session: Callable[[], Any]
    skip_bad: bool = False
    dry_run: bool = False
    advance: Advance = silent
    skipped: list[SkippedFile] = field(default_factory=list)
    finished: dict[str, Any] = field(default_factory=dict)
    """The steps of this piece of work that are done already, by name, with what they left."""
    keep_step: Callable[[str, Any], None] | None = None
    _session: Any = None

    @property
    def spark(self) -> Any:
        """The Spark session; started when a job first asks for it."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    @property
    def session_started(self) -> bool:
        return self._session is not None

    @property
    def staging(self) -> Path:
        """A folder for results that are not committed yet; the same when the work is taken up.

        It is made when first asked for, and removed when the run has ended well.
        """
        folder = staging_of(self.root, self.work)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def after(self, source: str) -> int:
        """Where to go on in an input; 0 for one that was never seen."""
        return self.watermark.get(source, 0)

    def files(self) -> list[StoreFile]:
        """The files of the model that was asked for, of this store or those that `roots` matches;
        with `space`, of one space.
        """
        options, model = self.options, tables.model_tables(self.options["model"])
        space = options.get("space")
        if space is not None and not model.spaces:
            raise InvalidInput(f"{model.model} lie in no spaces: leave out --space")
        folders = cut.find_stores(None if options["roots"] else str(self.root), options["roots"])
        return cut.find_files(folders, model, space)

    def target_of(self, *names: str) -> str:
        """A name for what a run is about, made of some options."""
        asked = [str(self.options[name] or "") for name in names]
        if self.options["model"] != DEFAULT_MODEL:
            asked.insert(0, self.options["model"])
        return "\n".join(asked).strip()

    def skip(self, source: str, problem: str) -> None:
        """Note an input that is left out. Only with `skip_bad`; raise the error otherwise."""
        self.skipped.append(SkippedFile(source, problem))

    def finish(self, step: str, data: Any = None) -> None:
        """Remember durably that a step is done, with what the rest of the job must know of it."""
        self.finished[step] = data
        if self.keep_step is not None:
            self.keep_step(step, data)

    @contextmanager
    def spark_progress(self, label: str) -> Iterator[None]:
        """Show how many of Spark's tasks are through while the block runs its jobs."""
        with following(self.spark, label, self.advance):
            yield


class Job(ABC):
    """One kind of work over the history of a store."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `fourfold pipeline list`."""
    explanation: ClassVar[str] = ""
    """More of it, for the help of the command."""
    options: ClassVar[tuple[Option, ...]] = ()
    makes_store: ClassVar[bool] = False
    """Whether a folder that is no store yet becomes one when the job is run on it."""

    def target(self, context: Context) -> str:
        """What this run writes to, as a stable name. Watermarks, and the rule of one run at a time,
        hold for each target on its own.
        """
        del context
        return ""

    @abstractmethod
    def plan(self, context: Context) -> Plan:
        """What there is to do."""

    @abstractmethod
    def run(self, context: Context, plan: Plan) -> Any:
        """Do it, where no reader looks; what `commit` needs to make it visible."""

    @abstractmethod
    def commit(self, context: Context, plan: Plan, result: Any) -> Report:
        """Make it visible, all at once."""

    def verdict(self, facts: Mapping[str, Any]) -> FourfoldError | None:
        """The error with which the command ends although the run has gone well: what it found out,
        read from the figures of its report.
        """
        del facts
        return None

    def report(self, report: Report) -> str:
        """What a person is told."""
        if report.sentence:
            return report.sentence
        return f"{counted(report.rows_in, 'row')} read, {counted(report.rows_out, 'row')} written"


def counted(count: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Rounds:
    """The rounds of one thing, as Parquet with one schema, in the folder of a run."""

    def __init__(self, context: Context, name: str, schema: str) -> None:
        self._spark = context.spark
        self._place = context.staging
        self._name = name
        self._schema = schema

    def folder(self, number: int) -> Path:
        return self._place / f"{self._name}-{number:05}"

    def kept(self, number: int, make: Callable[..., Any], *given: Any) -> Any:
        """A round that is there, or is made and written now."""
        folder = self.folder(number)
        if not (folder / "_SUCCESS").exists():
            make(*given).write.mode("overwrite").parquet(str(folder))
        return self.read([number])

    def read(self, numbers: Iterable[int]) -> Any:
        paths = [str(self.folder(number)) for number in numbers]
        return self._spark.read.schema(self._schema).parquet(*paths)
