-- Leases of sessions.

-- The newest lease of each session. The row stays after a release, with no holder, so that epochs only grow.
CREATE TABLE leases (
  session_key INTEGER PRIMARY KEY REFERENCES sessions (session_key),
  epoch INTEGER NOT NULL,
  holder TEXT,
  until_ms INTEGER NOT NULL
) STRICT;

-- Leases that were not released.
CREATE INDEX idx_leases_held ON leases (session_key) WHERE holder IS NOT NULL;
