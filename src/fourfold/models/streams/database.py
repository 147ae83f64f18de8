"""Database profile and migrations of the streams."""

from __future__ import annotations

from fourfold.kernel import load_migrations, profiles

PROFILE = profiles.STREAMS
MIGRATIONS = load_migrations("fourfold.models.streams")
