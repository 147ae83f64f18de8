"""Sessions in the pipeline: tables, the fold of views, and their parts of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.pipeline.models import PipelineModel

if TYPE_CHECKING:
    from fourfold.pipeline.gc_tasks import Collector
    from fourfold.pipeline.jobs.materialize import Materializer
    from fourfold.pipeline.jobs.stats import Statistics
    from fourfold.pipeline.tables import ModelTables
    from fourfold.pipeline.verify_tasks import Verifier


def _tables() -> ModelTables:
    from fourfold.pipeline.sessions.tables import SESSIONS  # noqa: PLC0415 - loaded on first use

    return SESSIONS


def _materialize() -> Materializer:
    from fourfold.pipeline.sessions.materialize import MATERIALIZER  # noqa: PLC0415 - loaded on first use

    return MATERIALIZER


def _verify() -> Verifier:
    from fourfold.pipeline.sessions.verify import VERIFIER  # noqa: PLC0415 - loaded on first use

    return VERIFIER


def _gc() -> Collector:
    from fourfold.pipeline.sessions.gc import COLLECTOR  # noqa: PLC0415 - loaded on first use

    return COLLECTOR


def _stats() -> Statistics:
    from fourfold.pipeline.sessions.stats import STATISTICS  # noqa: PLC0415 - loaded on first use

    return STATISTICS


MODEL = PipelineModel(
    name="sessions",
    tables=_tables,
    materialize=_materialize,
    verify=_verify,
    gc=_gc,
    stats=_stats,
    jobs={
        "lineage": "fourfold.pipeline.jobs.lineage",
    },
)
