"""Documents in the pipeline: tables, folds, sink, and their parts of jobs."""

from __future__ import annotations

from fourfold.pipeline.models import PipelineModel, lazy

MODEL = PipelineModel(
    name="documents",
    tables=lazy("fourfold.pipeline.documents.tables", "DOCUMENTS"),
    sink=lazy("fourfold.pipeline.documents.sink", "SINK"),
    materialize=lazy("fourfold.pipeline.documents.materialize", "MATERIALIZER"),
    load=lazy("fourfold.pipeline.documents.load", "LOADER"),
    verify=lazy("fourfold.pipeline.documents.verify", "VERIFIER"),
    gc=lazy("fourfold.pipeline.documents.gc", "COLLECTOR"),
    stats=lazy("fourfold.pipeline.documents.stats", "STATISTICS"),
    images=lazy("fourfold.pipeline.documents.change_images", "IMAGES"),
    archived=lazy("fourfold.pipeline.documents.archived", "ARCHIVED"),
    jobs={
        "snapshots": "fourfold.pipeline.jobs.snapshots",
    },
)
