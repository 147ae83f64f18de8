"""Sessions in the pipeline: tables, the fold of views, and their parts of jobs."""

from __future__ import annotations

from fourfold.pipeline.models import PipelineModel, lazy

MODEL = PipelineModel(
    name="sessions",
    tables=lazy("fourfold.pipeline.sessions.tables", "SESSIONS"),
    sink=lazy("fourfold.pipeline.sessions.sink", "SINK"),
    materialize=lazy("fourfold.pipeline.sessions.materialize", "MATERIALIZER"),
    verify=lazy("fourfold.pipeline.sessions.verify", "VERIFIER"),
    gc=lazy("fourfold.pipeline.sessions.gc", "COLLECTOR"),
    stats=lazy("fourfold.pipeline.sessions.stats", "STATISTICS"),
    images=lazy("fourfold.pipeline.sessions.change_images", "IMAGES"),
    archived=lazy("fourfold.pipeline.sessions.archived", "ARCHIVED"),
    jobs={
        "lineage": "fourfold.pipeline.jobs.lineage",
    },
)
