"""Metrics of a database, also as Prometheus text.

They are aggregates only: no SQL, no keys, no row data. Durations are counted in buckets, so that
memory is constant and percentiles can be computed anywhere.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

BUSY_WINDOW_S: Final = 60.0
BUSY_REMEMBERED_MAX: Final = 1_000
"""Window in which failures to get a lock are counted, and how many of them."""
SLOW_LOG_ENTRIES: Final = 256

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000)
GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of group sizes, in requests."""


@dataclass(slots=True)
class Metrics:
    """Counters of one database since it was opened."""

    transactions: int = 0
    requests: int = 0
    rolled_back: int = 0
    rejected: int = 0
    busy_total: int = 0
    wal_pages: int = 0
    checkpoints: int = 0
    latency_sum_s: float = 0.0
    latency_buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_MS) + 1))
    commit_sum_s: float = 0.0
    commit_buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_MS) + 1))
    group_sum: int = 0
    group_buckets: list[int] = field(default_factory=lambda: [0] * (len(GROUP_BUCKETS) + 1))
    slow_log: deque[tuple[str, float]] = field(
        default_factory=lambda: deque(maxlen=SLOW_LOG_ENTRIES)
    )
    slow_total: int = 0
    _busy_times: deque[float] = field(default_factory=lambda: deque(maxlen=BUSY_REMEMBERED_MAX))

    def record_commit(self, seconds: float, commit_s: float) -> None:
        """Count a committed transaction, whose COMMIT and sync took `commit_s` of its time."""
        self.transactions += 1
        self.commit_sum_s += commit_s
        self.commit_buckets[bisect_left(LATENCY_BUCKETS_MS, commit_s * 1000)] += 1
        self.latency_sum_s += seconds
        self.latency_buckets[bisect_left(LATENCY_BUCKETS_MS, seconds * 1000)] += 1

    def record_group(self, requests: int, items: int) -> None:
        """Count committed requests that shared a transaction; a batch has several items."""
        self.requests += requests
        self.group_sum += items
        self.group_buckets[bisect_left(GROUP_BUCKETS, items)] += 1

    def record_slow(self, seconds: float) -> None:
        """Add a transaction to the slow log."""
        self.slow_total += 1
        self.slow_log.append((datetime.now(UTC).isoformat(timespec="milliseconds"), seconds * 1000))

    def record_busy(self) -> None:
        """Count a lock timeout."""
        self.busy_total += 1
        self._busy_times.append(time.monotonic())

    def recent_busy_count(self, window_s: float = BUSY_WINDOW_S) -> int:
        """Return the number of lock timeouts in the last `window_s` seconds."""
        since = time.monotonic() - window_s
        return sum(1 for timestamp in self._busy_times if timestamp >= since)

    def latency_ms(self, quantile: float) -> float | None:
        """Return an upper bound of the latency at `quantile`; None before the first commit."""
        return _latency_ms(self.latency_buckets, quantile)


def _latency_ms(buckets: Sequence[int], quantile: float) -> float | None:
    transactions = sum(buckets)
    if not transactions:
        return None
    rank = quantile * transactions
    seen = 0
    for bound, count in zip((*LATENCY_BUCKETS_MS, float("inf")), buckets, strict=True):
        seen += count
        if seen >= rank:
            return bound
    return float("inf")


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """Metrics of a database at one time, named as in the specification."""

    database: str
    db_size_bytes: int
    wal_size_bytes: int
    open_connections: int
    open_readers: int
    pending_checkpoint: int
    last_vacuum_ts: str | None
    last_backup_ts: str | None
    txn_latency_ms: dict[str, float | None]
    sequences: dict[str, int]
    durable: dict[str, int]
    queued_requests: int
    queued_bytes: int
    counters: dict[str, int]
    latency_sum_s: float
    latency_buckets: tuple[int, ...]
    commit_sum_s: float
    commit_buckets: tuple[int, ...]
    group_sum: int
    group_buckets: tuple[int, ...]

    def without_gauges(self) -> MetricsReading:
        """Return only what was counted: the share of a closed database in a combined reading."""
        gauges: dict[str, Any] = dict.fromkeys(_GAUGES, 0)
        return replace(self, sequences={}, durable={}, **gauges)


def combine(name: str, readings: Sequence[MetricsReading]) -> MetricsReading:
    """Add up the readings of at least one database, under one name.

    Numbers of commits of different databases have no sum, so sequences are those of the only
    reading that has some, or none.
    """
    numbered = [reading for reading in readings if reading.sequences]
    first = numbered[0] if len(numbered) == 1 else replace(readings[0], sequences={}, durable={})
    gauges: dict[str, Any] = {
        gauge: sum(getattr(reading, gauge) for reading in readings) for gauge in _GAUGES
    }
    latencies = _add_buckets(reading.latency_buckets for reading in readings)
    return replace(
        first,
        database=name,
        last_vacuum_ts=None,
        last_backup_ts=None,
        txn_latency_ms={"p50": _latency_ms(latencies, 0.5), "p99": _latency_ms(latencies, 0.99)},
        counters={
            counter: sum(reading.counters[counter] for reading in readings)
            for counter in first.counters
        },
        latency_sum_s=sum(reading.latency_sum_s for reading in readings),
        latency_buckets=latencies,
        commit_sum_s=sum(reading.commit_sum_s for reading in readings),
        commit_buckets=_add_buckets(reading.commit_buckets for reading in readings),
        group_sum=sum(reading.group_sum for reading in readings),
        group_buckets=_add_buckets(reading.group_buckets for reading in readings),
        **gauges,
    )


def _add_buckets(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counts, strict=True)))


_GAUGES = {
    "db_size_bytes": "Bytes of the database file.",
    "wal_size_bytes": "Bytes of the write-ahead log.",
    "open_connections": "Writable connections; one for each database that is open for writing.",
    "open_readers": "Read-only connections in the pool.",
    "pending_checkpoint": "Pages of the write-ahead log that are not checkpointed.",
    "queued_requests": "Requests that wait for a commit.",
    "queued_bytes": "Bytes that wait for a commit.",
}
_COUNTERS = {
    "transactions": "Committed transactions.",
    "requests": "Committed requests; several share a transaction.",
    "rolled_back": "Transactions rolled back.",
    "rejected": "Requests rejected because the queue was full.",
    "busy_total": "Lock timeouts.",
    "slow_total": "Transactions slower than the threshold.",
    "checkpoints": "Completed background checkpoints.",
}


class _Collector:
    def __init__(self, readings: Iterable[MetricsReading], label: str) -> None:
        self._readings = list(readings)
        self._label = label

    def collect(self) -> Iterator[object]:
        from prometheus_client.core import (  # noqa: PLC0415  (only a scrape needs the library)
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"fourfold_{name}", text, labels=[self._label])
            for reading in self._readings:
                gauge.add_metric([reading.database], getattr(reading, name))
            yield gauge
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(
                f"fourfold_{name.removesuffix('_total')}", text, labels=[self._label]
            )
            for reading in self._readings:
                counter.add_metric([reading.database], reading.counters[name])
            yield counter
        sequence = GaugeMetricFamily(
            "fourfold_sequence", "The newest committed number.", labels=[self._label, "sequence"]
        )
        durable = GaugeMetricFamily(
            "fourfold_durable",
            "The newest number that survives a power failure.",
            labels=[self._label, "sequence"],
        )
        latency = HistogramMetricFamily(
            "fourfold_txn_latency_seconds", "Time from BEGIN to COMMIT.", labels=[self._label]
        )
        commit = HistogramMetricFamily(
            "fourfold_commit_seconds", "Time of COMMIT, with its sync.", labels=[self._label]
        )
        group = HistogramMetricFamily(
            "fourfold_group_items", "Writes that share a transaction.", labels=[self._label]
        )
        for reading in self._readings:
            for name, value in reading.sequences.items():
                sequence.add_metric([reading.database, name], value)
            for name, value in reading.durable.items():
                durable.add_metric([reading.database, name], value)
            labels, seconds = [reading.database], [bound / 1000 for bound in LATENCY_BUCKETS_MS]
            buckets = list(_cumulative(seconds, reading.latency_buckets))
            latency.add_metric(labels, buckets, sum_value=reading.latency_sum_s)
            buckets = list(_cumulative(seconds, reading.commit_buckets))
            commit.add_metric(labels, buckets, sum_value=reading.commit_sum_s)
            buckets = list(_cumulative(GROUP_BUCKETS, reading.group_buckets))
            group.add_metric(labels, buckets, sum_value=reading.group_sum)
        yield from (sequence, durable, latency, commit, group)


def _cumulative(bounds: Sequence[float], counts: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*bounds, None), counts, strict=True):
        total += count
        yield ("+Inf" if bound is None else str(bound), total)


def prometheus_text(readings: Iterable[MetricsReading], label: str = "database") -> str:
    """Format readings in the Prometheus exposition format; `label` has their names."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(_Collector(readings, label))  # type: ignore[arg-type]
    return generate_latest(registry).decode()
