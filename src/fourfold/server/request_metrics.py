"""Counts and latencies of requests, as plain integers that a scrape of `/metrics` formats.

Requests are counted by the path of their route, never by the name in it, so that the number of time
series is bounded and reveals nothing that is stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from fourfold.server.stream_reads import STREAM

LATENCY_BUCKETS_S: Final = (
    *(0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


PLAIN_APPEND: Final = ("POST", STREAM, 204)


class Histogram:
    """Durations by bucket, and their sum. One thread records, others may read."""

    __slots__ = ("buckets", "sum_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def record(self, seconds: float) -> None:
        """Count a duration."""
        self.sum_s += seconds
        self.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1


class Sample(NamedTuple):
    """One line of the exposition format."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """A metric with its samples."""

    name: str
    kind: str
    description: str
    samples: list[Sample]


class RequestMetrics:
    """Requests of one server since it started."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, str, int]] = Counter()
        """Responses by method, path of the route, and status, without `plain_appends`."""
        self.plain_appends = 0
        """Responses of the fast append path to appends that succeeded without a producer."""
        self.latencies: dict[tuple[str, str], Histogram] = {}
        """Time to a response by method and path of the route, without live reads."""
        self.refused: Counter[str] = Counter()
        """Requests that were refused before their route ran, by the kind of error."""
        self.in_flight: Counter[str] = Counter()
        """Requests now: live readers by `long-poll` and `feed`, which sends events, and others."""

    def latency(self, method: str, path: str) -> Histogram:
        """Return the histogram of a route."""
        histogram = self.latencies.get((method, path))
        if histogram is None:
            histogram = self.latencies[method, path] = Histogram()
        return histogram

    def families(self) -> Iterator[Family]:
        """Return the metrics as they are now."""
        responses = self.responses.copy()
        if self.plain_appends:
            responses[PLAIN_APPEND] += self.plain_appends
        yield Family(
            "fourfold_http_requests_total",
            "counter",
            "Responses by route and status.",
            [
                Sample("", (("method", method), ("route", path), ("status", str(status))), count)
                for (method, path, status), count in sorted(responses.items())
            ],
        )
        yield Family(
            "fourfold_http_request_duration_seconds",
            "histogram",
            "Time from the end of a request to its response, without live reads.",
            [
                sample
                for (method, path), histogram in sorted(self.latencies.items())
                for sample in _samples(histogram, (("method", method), ("route", path)))
            ],
        )
        yield _by_label(
            "fourfold_http_refused_total",
            "counter",
            "Requests that were refused before their route ran, by kind of error.",
            "kind",
            self.refused,
        )
        yield _by_label(
            "fourfold_http_requests_in_flight",
            "gauge",
            "Requests now: live readers by long-poll and by feed, and others.",
            "kind",
            self.in_flight,
        )


def _by_label(name: str, kind: str, text: str, label: str, counts: Counter[str]) -> Family:
    samples = [Sample("", ((label, key),), value) for key, value in sorted(counts.items())]
    return Family(name, kind, text, samples)


def _samples(histogram: Histogram, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
    total = 0
    for bound, count in zip((*LATENCY_BUCKETS_S, None), list(histogram.buckets), strict=True):
        total += count
        le = "+Inf" if bound is None else f"{bound:g}"
        yield Sample("_bucket", (*labels, ("le", le)), total)
    yield Sample("_sum", labels, histogram.sum_s)
    yield Sample("_count", labels, total)


def format_families(families: Iterator[Family]) -> str:
    """Format metrics in the Prometheus exposition format."""
    lines: list[str] = []
    for family in families:
        lines += (
            f"# HELP {family.name} {family.description}",
            f"# TYPE {family.name} {family.kind}",
        )
        for suffix, labels, value in family.samples:
            inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
            shown = f"{{{inner}}}" if inner else ""
            lines.append(f"{family.name}{suffix}{shown} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
