"""Metrics in the Prometheus exposition format as messages of OTLP.

What a server exports is what `GET /metrics` returns at that time, under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fourfold.errors import MissingDependency
from fourfold.otlp.sender import put_attribute

try:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import (
        AggregationTemporality,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
    )
except ImportError as error:
    raise MissingDependency(
        "the export of metrics requires opentelemetry-proto, which is not installed",
        hint="pip install 'fourfold[otlp]'",
    ) from error

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
Labels = tuple[tuple[str, str], ...]


def metrics_of(text: str, started_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield the metrics of an exposition; counters count from `started_ns`."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    for family in text_string_to_metric_families(text):
        if not family.samples:
            continue
        metric = Metric(name=family.name, description=family.documentation)
        if family.type == "histogram":
            metric.histogram.aggregation_temporality = _CUMULATIVE
            points = _histograms(family.samples, started_ns, now_ns)
            metric.histogram.data_points.extend(points)
        elif family.type == "counter":
            metric.name = f"{family.name}_total"
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = _CUMULATIVE
            metric.sum.data_points.extend(_numbers(family.samples, started_ns, now_ns))
        else:
            metric.gauge.data_points.extend(_numbers(family.samples, 0, now_ns))
        yield metric


def _numbers(samples: Sequence[Any], started_ns: int, now_ns: int) -> Iterator[NumberDataPoint]:
    for sample in samples:
        point = NumberDataPoint(
            start_time_unix_nano=started_ns, time_unix_nano=now_ns, as_double=sample.value
        )
        _put_labels(point, tuple(sample.labels.items()))
        yield point


def _histograms(
    samples: Sequence[Any], started_ns: int, now_ns: int
) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels; its buckets are not cumulative, unlike the samples."""
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    sums: dict[Labels, float] = {}
    for sample in samples:
        labels = tuple((key, value) for key, value in sample.labels.items() if key != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, bounds in buckets.items():
        point = HistogramDataPoint(
            start_time_unix_nano=started_ns,
            time_unix_nano=now_ns,
            sum=sums.get(labels, 0.0),
            count=int(bounds[-1][1]),
            explicit_bounds=[bound for bound, _ in bounds[:-1]],
        )
        before = 0.0
        for _, total in bounds:
            point.bucket_counts.append(int(total - before))
            before = total
        _put_labels(point, labels)
        yield point


def _put_labels(point: NumberDataPoint | HistogramDataPoint, labels: Labels) -> None:
    for name, value in labels:
        put_attribute(point.attributes, name, value)
