"""What the tests of maintained archive tables do to a store, and what they see of its archive."""

from __future__ import annotations

import time

from published_stores import contents, rebuilt

from fourfold.archive.catalog import Catalog
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.table_layout import STREAM_RECORDS
from fourfold.objects import FolderStore
from fourfold.store import retention
from support.properties import sample

DAY_MS = 86_400_000


def later_ms(days=2):
    """A time after every grace period."""
    return time.time_ns() // 1_000_000 + days * DAY_MS


def compacted(store):
    report = retention.merge(store)
    assert not report.failures, report.failures
    return report.merged


def collected(store, points=0, **options):
    """Keep some points, and delete what can be deleted two days from now."""
    keep = retention.Keep(points=points)
    options = {"grace_s": 3600, "at_ms": later_ms(), **options}
    report = retention.collect(store, keep=keep, **options)
    assert not report.failures, report.failures
    return report


def files_of(url):
    """The files of each table that the catalog names, but for the segments of streams."""
    with FolderStore(url) as objects:
        tables = Catalog(objects).refresh().tables
        return {
            name: DeltaLog(objects, f"tables/{name}").snapshot(version).files
            for name, version in tables.items()
            if name != STREAM_RECORDS
        }


def check_points(tmp_path, url, was, label, count=2):
    """Restore some of the points, from the first to the last, and compare their rows."""
    points = sample(was, count)
    assert rows_at_points(tmp_path, url, points, label) == {point: was[point] for point in points}


def rows_at_points(tmp_path, url, points, label):
    return {
        point: contents(rebuilt(tmp_path / f"{label}-{number}", url, at=point))
        for number, point in enumerate(points)
    }


def maintained(store):
    """Everything that maintenance does: purge, compact, keep two points, and delete."""
    compacted(store)
    collected(store, 2, grace_s=0)
