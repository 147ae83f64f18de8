"""Parts of the pipeline that each model provides: its tables and its parts of jobs.

The registry of models names a module for each of them, which defines its `PipelineModel` as
`MODEL`. The fields are functions that import a part on first use, because workers and most jobs
need few of them:

    tables          the tables that the source can read, with their folds   `tables`
    stream_reader   reads its tables as a stream, if it has its own offsets `stream_reader`
    sink            writes DataFrames into it                               `sink`
    materialize     its tables as Parquet, for the job of that name         `jobs.materialize`
    load            files into the model, for the job of that name          `jobs.load`
    verify          its rules, for the job of that name                     `verify_tasks`
    gc              mark and collect, for the job of that name              `gc_tasks`
    stats           its statistics, for the job of that name                `jobs.stats`
    archived        its tables in the archive, which Spark reads natively   `archive_plan`
    images          its tables of changes with images                       `image_changes`
    frames          tables that it reads by functions of its own            `reader`
    jobs            further jobs of this model alone, by name, each with its module

A part that is None is not offered: the job refuses the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from fourfold.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from fourfold.pipeline.archive_plan import Archived
    from fourfold.pipeline.gc_tasks import Collector
    from fourfold.pipeline.image_changes import ImageLog
    from fourfold.pipeline.jobs.load import Loader
    from fourfold.pipeline.jobs.materialize import Materializer
    from fourfold.pipeline.jobs.stats import Statistics
    from fourfold.pipeline.reader import FrameReader
    from fourfold.pipeline.sink import Sink
    from fourfold.pipeline.verify_tasks import Verifier
    from fourfold.query.tables import ModelTables

    StreamReader = Callable[[Mapping[str, str], StructType], DataSourceStreamReader]

T = TypeVar("T")
Part = Literal["sink", "materialize", "load", "verify", "gc", "stats"]

DEFAULT_MODEL = "documents"
"""Model of a read without the option `model`."""


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """Parts of the pipeline that one model provides."""

    name: str
    tables: Callable[[], ModelTables]
    stream_reader: Callable[[], StreamReader] | None = None
    sink: Callable[[], Sink] | None = None
    materialize: Callable[[], Materializer] | None = None
    load: Callable[[], Loader] | None = None
    verify: Callable[[], Verifier] | None = None
    gc: Callable[[], Collector] | None = None
    stats: Callable[[], Statistics] | None = None
    archived: Callable[[], Mapping[str, Archived]] | None = None
    images: Callable[[], Mapping[str, ImageLog]] | None = None
    frames: Callable[[], Mapping[str, FrameReader]] | None = None
    jobs: Mapping[str, str] = field(default_factory=dict)


def list_models() -> tuple[PipelineModel, ...]:
    """Return the models of the pipeline, the default one first."""
    from fourfold.models.model import all_models  # noqa: PLC0415 - workers need no registry

    return tuple(_imported(model.pipeline) for model in all_models() if model.pipeline is not None)


def lazy(module: str, name: str) -> Callable[[], Any]:
    """Return a function that imports a part of a model on first use."""
    return lambda: getattr(import_module(module), name)


def _imported(module: str) -> PipelineModel:
    return cast("PipelineModel", lazy(module, "MODEL")())


def model_names(part: Part | None = None) -> tuple[str, ...]:
    """Return the names of the models, or of those that have `part`."""
    return tuple(
        model.name for model in list_models() if part is None or getattr(model, part) is not None
    )


def get_model(name: str) -> PipelineModel:
    """Return a model by name, or raise NotFound. Imports no other model."""
    from fourfold.models import model as registry  # noqa: PLC0415 - workers need no registry

    module = registry.model(name).pipeline
    if module is None:
        raise NotFound(
            f"model {name!r} has no tables in the pipeline",
            hint=f"Models: {', '.join(model_names())}.",
        )
    return _imported(module)


def model_tables(name: str) -> ModelTables:
    """Return the tables of a model."""
    return get_model(name).tables()


def get_materializer(name: str) -> Materializer:
    """Return what the job `materialize` needs of a model."""
    return _loaded(get_model(name).materialize, "materialize", name)


def get_loader(name: str) -> Loader:
    """Return what the job `load` needs of a model."""
    return _loaded(get_model(name).load, "load", name)


def get_verifier(name: str) -> Verifier:
    """Return what the job `verify` needs of a model."""
    return _loaded(get_model(name).verify, "verify", name)


def get_collector(name: str) -> Collector:
    """Return what the job `gc` needs of a model."""
    return _loaded(get_model(name).gc, "gc", name)


def get_statistics(name: str) -> Statistics:
    """Return what the job `stats` needs of a model."""
    return _loaded(get_model(name).stats, "stats", name)


def _loaded(load: Callable[[], T] | None, part: Part, name: str) -> T:
    if load is None:
        raise NotFound(
            f"job {part!r} does not support the model {name!r}",
            hint=f"Models: {', '.join(model_names(part))}.",
        )
    return load()
