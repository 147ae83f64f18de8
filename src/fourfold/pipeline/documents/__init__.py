"""Documents in the pipeline: tables, folds, sink, and their parts of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.pipeline.models import PipelineModel

if TYPE_CHECKING:
    from fourfold.pipeline.gc_tasks import Collector
    from fourfold.pipeline.jobs.load import Loader
    from fourfold.pipeline.jobs.materialize import Materializer
    from fourfold.pipeline.jobs.stats import Statistics
    from fourfold.pipeline.sink import Sink
    from fourfold.pipeline.tables import ModelTables
    from fourfold.pipeline.verify_tasks import Verifier


def _tables() -> ModelTables:
    from fourfold.pipeline.documents.tables import DOCUMENTS  # noqa: PLC0415 - loaded on first use

    return DOCUMENTS


def _sink() -> Sink:
    from fourfold.pipeline.documents.sink import SINK  # noqa: PLC0415 - loaded on first use

    return SINK


def _materialize() -> Materializer:
    from fourfold.pipeline.documents.materialize import MATERIALIZER  # noqa: PLC0415 - loaded on first use

    return MATERIALIZER


def _load() -> Loader:
    from fourfold.pipeline.documents.load import LOADER  # noqa: PLC0415 - loaded on first use

    return LOADER


def _verify() -> Verifier:
    from fourfold.pipeline.documents.verify import VERIFIER  # noqa: PLC0415 - loaded on first use

    return VERIFIER


def _gc() -> Collector:
    from fourfold.pipeline.documents.gc import COLLECTOR  # noqa: PLC0415 - loaded on first use

    return COLLECTOR


def _stats() -> Statistics:
    from fourfold.pipeline.documents.stats import STATISTICS  # noqa: PLC0415 - loaded on first use

    return STATISTICS


MODEL = PipelineModel(
    name="documents",
    tables=_tables,
    sink=_sink,
    materialize=_materialize,
    load=_load,
    verify=_verify,
    gc=_gc,
    stats=_stats,
    jobs={
        "snapshots": "fourfold.pipeline.jobs.snapshots",
    },
)
