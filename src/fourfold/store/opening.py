"""What the settings of a store say to its parts."""

from __future__ import annotations

from fourfold import config
from fourfold.kernel import GroupLimits, Options, Thresholds
from fourfold.models.streams.archive import Policy


def policy_of(settings: config.Settings) -> Policy:
    archive = settings.archive
    return Policy(
        seal_bytes=archive.seal_bytes,
        seal_rows=archive.seal_rows,
        seal_age_s=archive.seal_age_s,
        cache_bytes=archive.cache_bytes,
        grace_s=archive.grace_s,
        concurrency=archive.concurrency,
        index=archive.index == "on",
        compact=archive.compact == "on",
        compact_bytes=archive.compact_bytes,
    )


def options_of(settings: config.Settings) -> Options:
    kernel = settings.kernel
    return Options(
        readers_max=kernel.readers_max,
        transaction_deadline_s=kernel.transaction_deadline_s,
        slow_transaction_ms=kernel.slow_transaction_ms,
        checkpoint_bytes=kernel.checkpoint_bytes,
        group=GroupLimits(
            group_requests_max=kernel.group_requests_max,
            group_bytes_max=kernel.group_bytes_max,
            queue_requests_max=kernel.queue_requests_max,
            queue_bytes_max=kernel.queue_bytes_max,
            placement=kernel.commit_placement,
        ),
        thresholds=Thresholds(
            wal_degraded_bytes=settings.health.wal_degraded_bytes,
            wal_failed_bytes=settings.health.wal_failed_bytes,
        ),
    )
