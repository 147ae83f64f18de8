"""The database of the sessions: profile, migrations, and the counter of all events."""

from __future__ import annotations

from fourfold.kernel import Sequence, load_migrations, load_queries, profiles

_PACKAGE = "fourfold.models.sessions"
_SQL = load_queries(_PACKAGE)

PROFILE = profiles.SESSIONS
MIGRATIONS = load_migrations(_PACKAGE)
POSITION = Sequence(
    "position",
    read=_SQL.last_position,
    claim=_SQL.claim_position,
    advance=_SQL.lift_position,
    seed=_SQL.seed_position,
)
"""The position of an event among all sessions. The log itself is the counter; the row of the kernel
is only a floor.
"""
