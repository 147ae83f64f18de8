-- Claims of a session while a turn was recorded as running: [[event, epoch, holder, at_ms], ...], oldest first.

ALTER TABLE leases ADD COLUMN resumed TEXT NOT NULL DEFAULT '[]';
