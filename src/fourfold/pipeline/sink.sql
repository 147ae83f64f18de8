-- name: newest_of_session
-- The greatest local_seq under which a writer has committed anything here; no row of its own is needed, the log is the
-- ledger. The index on (session_id, local_seq) answers it.
SELECT max(local_seq) FROM "commit" WHERE session_id = ?1
