-- What publishing asks of the sessions.

-- name: forget_purged
-- A purge takes all events of a session at once, and only the session's row shows it.
DELETE FROM events WHERE session_key IN (SELECT session_key FROM sessions WHERE purged <> 0)
