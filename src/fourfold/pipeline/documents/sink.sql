-- name: newest_of_session
-- The greatest local_seq that a session has committed here. The log is the ledger, so no row of its own is needed; the
-- index on (session_id, local_seq) answers it.
SELECT max(local_seq) FROM "commit" WHERE session_id = ?1
