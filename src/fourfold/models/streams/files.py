"""The file of the streams: its profile and its migrations."""

from __future__ import annotations

from fourfold.kernel import Migration, profiles
from fourfold.kernel.statements import read_sql

PROFILE = profiles.STREAMS
MIGRATIONS = (
    Migration(1, "streams", read_sql("fourfold.models.streams", "0001_streams.sql")),
    Migration(2, "subscriptions", read_sql("fourfold.models.streams", "0002_subscriptions.sql")),
    Migration(3, "archive", read_sql("fourfold.models.streams", "0003_archive.sql")),
)
