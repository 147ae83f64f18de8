-- Key and time of the newest entry of a log up to a key (?1), by which the last one before a time is searched.

-- name: commit_before
SELECT seq, created_at FROM "commit" WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1

-- name: record_before
SELECT id, ts_ms FROM wal_log WHERE id <= ?1 ORDER BY id DESC LIMIT 1

-- name: envelope_before
SELECT global_seq, created_at FROM envelopes WHERE global_seq <= ?1 ORDER BY global_seq DESC LIMIT 1

-- name: event_before
SELECT position, at FROM events WHERE position <= ?1 ORDER BY position DESC LIMIT 1
