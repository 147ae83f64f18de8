"""Streams in the pipeline: tables, a source with an offset per stream, a sink, and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.pipeline.models import PipelineModel

if TYPE_CHECKING:
    from fourfold.pipeline.models import StreamReader
    from fourfold.pipeline.sink import Sink
    from fourfold.pipeline.tables import ModelTables
    from fourfold.pipeline.verify_tasks import Verifier


def _tables() -> ModelTables:
    from fourfold.pipeline.streams.tables import STREAMS  # noqa: PLC0415 - loaded on first use

    return STREAMS


def _stream_reader() -> StreamReader:
    from fourfold.pipeline.streams.stream_source import stream_reader  # noqa: PLC0415 - loaded on first use

    return stream_reader


def _sink() -> Sink:
    from fourfold.pipeline.streams.sink import SINK  # noqa: PLC0415 - loaded on first use

    return SINK


def _verify() -> Verifier:
    from fourfold.pipeline.streams.verify import VERIFIER  # noqa: PLC0415 - loaded on first use

    return VERIFIER


MODEL = PipelineModel(
    name="streams",
    tables=_tables,
    stream_reader=_stream_reader,
    sink=_sink,
    verify=_verify,
    jobs={
        "bootstrap": "fourfold.pipeline.jobs.bootstrap",
        "compact": "fourfold.pipeline.jobs.compact",
        "delta-log": "fourfold.pipeline.jobs.delta_streams",
        "index": "fourfold.pipeline.jobs.index",
        "seal": "fourfold.pipeline.jobs.seal",
    },
)
