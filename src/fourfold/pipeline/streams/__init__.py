"""Streams in the pipeline: tables, a source with an offset per stream, a sink, and jobs."""

from __future__ import annotations

from fourfold.pipeline.models import PipelineModel, lazy

MODEL = PipelineModel(
    name="streams",
    tables=lazy("fourfold.pipeline.streams.tables", "STREAMS"),
    stream_reader=lazy("fourfold.pipeline.streams.stream_source", "stream_reader"),
    sink=lazy("fourfold.pipeline.streams.sink", "SINK"),
    frames=lazy("fourfold.pipeline.streams.segment_tables", "TABLES"),
    materialize=lazy("fourfold.pipeline.streams.materialize", "MATERIALIZER"),
    stats=lazy("fourfold.pipeline.streams.stats", "STATISTICS"),
    verify=lazy("fourfold.pipeline.streams.verify", "VERIFIER"),
    jobs={
        "bootstrap": "fourfold.pipeline.jobs.bootstrap",
        "compact": "fourfold.pipeline.jobs.compact",
        "companions": "fourfold.pipeline.jobs.companions",
        "delta-log": "fourfold.pipeline.jobs.delta_streams",
        "index": "fourfold.pipeline.jobs.index",
        "seal": "fourfold.pipeline.jobs.seal",
    },
)
