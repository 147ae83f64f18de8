"""Graphs in the pipeline: tables, the fold of current objects, and their parts of jobs."""

from __future__ import annotations

from fourfold.pipeline.models import PipelineModel, lazy

MODEL = PipelineModel(
    name="graphs",
    tables=lazy("fourfold.pipeline.graphs.tables", "GRAPHS"),
    sink=lazy("fourfold.pipeline.graphs.sink", "SINK"),
    materialize=lazy("fourfold.pipeline.graphs.materialize", "MATERIALIZER"),
    load=lazy("fourfold.pipeline.graphs.load", "LOADER"),
    verify=lazy("fourfold.pipeline.graphs.verify", "VERIFIER"),
    stats=lazy("fourfold.pipeline.graphs.stats", "STATISTICS"),
    images=lazy("fourfold.pipeline.graphs.change_images", "IMAGES"),
    archived=lazy("fourfold.pipeline.graphs.archived", "ARCHIVED"),
    jobs={
        "components": "fourfold.pipeline.jobs.components",
    },
)
