-- The newest entries of each log, up to a key of it (?2). ?1 is the most that is read.

-- name: newest_commits
SELECT created_at FROM "commit" WHERE seq <= ?2 ORDER BY seq DESC LIMIT ?1

-- name: newest_records
SELECT streams.stream, newest.ts_ms, newest.offset
FROM (SELECT id, sid, ts_ms, offset FROM wal_log WHERE id <= ?2 ORDER BY id DESC LIMIT ?1) AS newest
JOIN streams ON streams.sid = newest.sid
ORDER BY newest.id DESC

-- name: newest_envelopes
SELECT global_seq, app_id, created_at, kinds FROM envelopes WHERE global_seq <= ?2 ORDER BY global_seq DESC LIMIT ?1

-- name: newest_events
SELECT sessions.session_id, newest.event_id, newest.type, newest.at
FROM (
    SELECT position, session_key, event_id, type, at FROM events WHERE position <= ?2 ORDER BY position DESC LIMIT ?1
) AS newest
JOIN sessions ON sessions.session_key = newest.session_key
WHERE sessions.deleted_at IS NULL
ORDER BY newest.position DESC
