"""Database profile and migrations of the streams."""

from __future__ import annotations

from fourfold.kernel import Migration, profiles
from fourfold.kernel.named_queries import read_sql

PROFILE = profiles.STREAMS
MIGRATIONS = (
    Migration(1, "streams", read_sql("fourfold.models.streams", "0001_streams.sql")),
    Migration(2, "subscriptions", read_sql("fourfold.models.streams", "0002_subscriptions.sql")),
    Migration(3, "archive", read_sql("fourfold.models.streams", "0003_archive.sql")),
    Migration(4, "indexes", read_sql("fourfold.models.streams", "0004_indexes.sql")),
    Migration(5, "pending_levels", read_sql("fourfold.models.streams", "0005_pending_levels.sql")),
    Migration(6, "recent_places", read_sql("fourfold.models.streams", "0006_recent_places.sql")),
    Migration(7, "rules", read_sql("fourfold.models.streams", "0007_rules.sql")),
    Migration(
        8, "deleted_streams", read_sql("fourfold.models.streams", "0008_deleted_streams.sql")
    ),
    Migration(
        9,
        "subscription_owners",
        read_sql("fourfold.models.streams", "0009_subscription_owners.sql"),
    ),
    Migration(10, "incarnations", read_sql("fourfold.models.streams", "0010_incarnations.sql")),
)
