-- Facts of one store, each found without reading a whole log. ?1 is the most that is counted.

-- name: streams
SELECT count(*) FROM (SELECT 1 FROM streams LIMIT ?1)

-- name: stream_records
SELECT coalesce(sum(next_offset - max(first_offset, coalesce(fork_offset, 0))), 0) FROM streams

-- name: newest_record
SELECT ts_ms FROM wal_log ORDER BY id DESC LIMIT 1

-- name: sessions
SELECT count(*) FROM (SELECT 1 FROM sessions WHERE deleted_at IS NULL LIMIT ?1)

-- name: newest_event
SELECT at FROM events ORDER BY position DESC LIMIT 1

-- name: newest_envelope
SELECT created_at FROM envelopes ORDER BY global_seq DESC LIMIT 1
