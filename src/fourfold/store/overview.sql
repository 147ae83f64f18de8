-- Facts of one store, each found without reading a whole log. ?1 is the most that is counted.

-- name: streams
SELECT count(*) FROM (SELECT 1 FROM streams LIMIT ?1)

-- name: streams_until
-- Streams that were created by a time (?2) and still exist.
SELECT count(*) FROM (SELECT 1 FROM streams WHERE created_at_ms <= ?2 LIMIT ?1)

-- name: stream_records
SELECT coalesce(sum(next_offset - max(first_offset, coalesce(fork_offset, 0))), 0) FROM streams

-- name: sessions
SELECT count(*) FROM (SELECT 1 FROM sessions WHERE deleted_at IS NULL LIMIT ?1)

-- name: sessions_until
-- Sessions that existed at a time (?2).
SELECT count(*) FROM (
    SELECT 1 FROM sessions WHERE created_at <= ?2 AND (deleted_at IS NULL OR deleted_at > ?2) LIMIT ?1
)
