"""Graphs in the pipeline: tables, the fold of current objects, and their parts of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.pipeline.models import PipelineModel

if TYPE_CHECKING:
    from fourfold.pipeline.jobs.load import Loader
    from fourfold.pipeline.jobs.materialize import Materializer
    from fourfold.pipeline.jobs.stats import Statistics
    from fourfold.pipeline.tables import ModelTables
    from fourfold.pipeline.verify_tasks import Verifier


def _tables() -> ModelTables:
    from fourfold.pipeline.graphs.tables import GRAPHS  # noqa: PLC0415 - loaded on first use

    return GRAPHS


def _materialize() -> Materializer:
    from fourfold.pipeline.graphs.materialize import MATERIALIZER  # noqa: PLC0415 - loaded on first use

    return MATERIALIZER


def _load() -> Loader:
    from fourfold.pipeline.graphs.load import LOADER  # noqa: PLC0415 - loaded on first use

    return LOADER


def _verify() -> Verifier:
    from fourfold.pipeline.graphs.verify import VERIFIER  # noqa: PLC0415 - loaded on first use

    return VERIFIER


def _stats() -> Statistics:
    from fourfold.pipeline.graphs.stats import STATISTICS  # noqa: PLC0415 - loaded on first use

    return STATISTICS


MODEL = PipelineModel(
    name="graphs",
    tables=_tables,
    materialize=_materialize,
    load=_load,
    verify=_verify,
    stats=_stats,
    jobs={
        "components": "fourfold.pipeline.jobs.components",
    },
)
