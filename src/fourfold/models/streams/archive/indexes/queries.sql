-- name: indexes
SELECT index_name, index_secret, indexed_offset FROM key_indexes WHERE stream = ?1 ORDER BY index_name

-- name: index
SELECT index_secret, indexed_offset FROM key_indexes WHERE stream = ?1 AND index_name = ?2

-- name: put_index
-- ?3 its secret, which stays what it was; ?4 how many segments, ?5 up to which offset, ?6 now.
INSERT INTO key_indexes (stream, index_name, index_secret, indexed_through, indexed_offset, updated_at_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (stream, index_name) DO UPDATE SET indexed_through = excluded.indexed_through,
    indexed_offset = excluded.indexed_offset, updated_at_ms = excluded.updated_at_ms

-- name: drop_index
DELETE FROM key_indexes WHERE stream = ?1 AND index_name = ?2

-- name: runs
-- The runs that count, in the order of their offsets.
SELECT run_id, index_name, level, start_offset, end_offset, object_key, size_bytes, filter_len, record_count, digest
FROM key_runs WHERE stream = ?1 AND index_name = ?2 AND retired_at_ms IS NULL ORDER BY start_offset

-- name: runs_between
-- Runs that count and cover some of the offsets from ?3 up to ?4.
SELECT run_id, index_name, level, start_offset, end_offset, object_key, size_bytes, filter_len, record_count, digest
FROM key_runs WHERE stream = ?1 AND index_name = ?2 AND retired_at_ms IS NULL AND end_offset >= ?3 AND start_offset < ?4
ORDER BY start_offset

-- name: active_runs
SELECT object_key FROM key_runs WHERE stream = ?1 AND retired_at_ms IS NULL

-- name: all_runs
SELECT run_id, object_key, size_bytes, retired_at_ms, retired_gen FROM key_runs WHERE stream = ?1

-- name: add_run
INSERT INTO key_runs (run_id, stream, index_name, level, start_segment, end_segment, start_offset, end_offset, object_key,
                      size_bytes, filter_len, record_count, digest)
VALUES (?1, ?2, ?3, ?4,
    coalesce((SELECT max(segment_index) FROM segments WHERE stream = ?2 AND start_offset <= ?5), 0),
    coalesce((SELECT max(segment_index) FROM segments WHERE stream = ?2 AND start_offset <= ?6), 0),
    ?5, ?6, ?7, ?8, ?9, ?10, ?11)

-- name: retire_run
UPDATE key_runs SET retired_at_ms = ?2 WHERE run_id = ?1 AND retired_at_ms IS NULL

-- name: retire_given_up
-- Runs that cover only records that were given up.
UPDATE key_runs SET retired_at_ms = ?3 WHERE stream = ?1 AND retired_at_ms IS NULL AND end_offset < ?2

-- name: left_out
-- A manifest that does not refer to a run is published.
UPDATE key_runs SET retired_gen = ?2 WHERE run_id = ?1 AND retired_gen IS NULL

-- name: forget_run
DELETE FROM key_runs WHERE object_key = ?1 AND retired_at_ms IS NOT NULL

-- name: indexed_through
-- How many segments, counted from the first one ever, end below an offset.
SELECT coalesce(
    (SELECT max(segment_index) + 1 FROM segments WHERE stream = ?1 AND end_offset < ?2),
    (SELECT min(segment_index) FROM segments WHERE stream = ?1), 0)

-- name: unindexed
-- Published segments that an index does not cover, first one first.
SELECT segment_id, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest,
       local_path, uploaded_at_ms
FROM segments WHERE stream = ?1 AND uploaded_at_ms IS NOT NULL AND end_offset >= ?2 ORDER BY start_offset LIMIT ?3

-- name: segment_at
-- The segment that a record is in.
SELECT segment_id, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest,
       local_path, uploaded_at_ms
FROM segments WHERE stream = ?1 AND start_offset <= ?2 ORDER BY start_offset DESC LIMIT 1

-- name: name_of
SELECT stream FROM streams WHERE sid = ?1

-- name: streams_to_index
-- Streams with published segments that an index does not cover: ?3 is how many at least.
SELECT s.stream, s.incarnation FROM streams AS s LEFT JOIN key_indexes AS k ON k.stream = s.stream AND k.index_name = ''
WHERE s.uploaded_segment_count > 0 AND s.uploaded_segment_count - coalesce(k.indexed_through, 0) >= ?3 AND s.stream > ?1
ORDER BY s.stream LIMIT ?2

-- name: declared
-- Streams with an index of a field.
SELECT DISTINCT k.stream, s.incarnation FROM key_indexes AS k JOIN streams AS s ON s.stream = k.stream
WHERE k.index_name <> '' AND s.uploaded_segment_count - k.indexed_through >= ?3 AND k.stream > ?1 ORDER BY k.stream LIMIT ?2

-- name: standing
SELECT k.index_name, k.indexed_through, k.indexed_offset, count(r.run_id), coalesce(sum(r.size_bytes), 0),
       coalesce(max(r.level), 0)
FROM key_indexes AS k
LEFT JOIN key_runs AS r ON r.stream = k.stream AND r.index_name = k.index_name AND r.retired_at_ms IS NULL
WHERE k.stream = ?1 GROUP BY k.index_name ORDER BY k.index_name

-- name: broken_indexes
SELECT k.stream FROM key_indexes AS k LEFT JOIN streams AS s ON s.stream = k.stream
LEFT JOIN stream_segment_meta AS t ON t.stream = k.stream
WHERE s.sid IS NULL OR k.indexed_offset > s.uploaded_through + 1 AND k.indexed_offset > s.first_offset
    OR k.indexed_through > coalesce(t.segment_count, 0)
LIMIT ?1

-- name: broken_runs
-- Runs of no index, or that cover what it does not, or what another run of it covers too; and a gap between two of them, above
-- what was given up.
SELECT run_id FROM (
    SELECT r.run_id, r.start_offset, r.end_offset, r.start_segment, r.end_segment, k.indexed_offset, s.first_offset,
           lag(r.end_offset) OVER (PARTITION BY r.stream, r.index_name ORDER BY r.start_offset) AS before
    FROM key_runs AS r LEFT JOIN key_indexes AS k ON k.stream = r.stream AND k.index_name = r.index_name
    LEFT JOIN streams AS s ON s.stream = r.stream
    WHERE r.retired_at_ms IS NULL
) WHERE indexed_offset IS NULL OR start_offset > end_offset OR start_segment > end_segment OR end_offset >= indexed_offset
    OR start_offset <= before
LIMIT ?1
