-- name: segments_before
-- Segments of a stream with records from ?3 to before ?2, the newest first, at most ?4; each with its companion, if there is one.
SELECT g.segment_id, g.segment_index, g.start_offset, g.end_offset, g.size_bytes, g.payload_bytes, g.block_count,
       g.last_append_ms, g.digest, g.local_path, g.uploaded_at_ms,
       c.object_key, c.plan_generation, c.sections_json, c.size_bytes, c.primary_timestamp_min_ms, c.primary_timestamp_max_ms
FROM segments AS g
LEFT JOIN search_segment_companions AS c ON c.stream = g.stream AND c.segment_index = g.segment_index
WHERE g.stream = ?1 AND g.start_offset < ?2 AND g.end_offset >= ?3
ORDER BY g.start_offset DESC LIMIT ?4

-- name: records_with_word
-- Records of the log that may contain a word, in any case, by the pattern ?4: those that contain it, and those with escapes or
-- other letters than ASCII, in which it may be written otherwise.
SELECT offset, payload, ts_ms, headers FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3
    AND (CAST(payload AS TEXT) LIKE ?4 OR instr(payload, X'5C') OR length(CAST(payload AS TEXT)) <> length(payload))
ORDER BY offset

-- name: records_with_bytes
-- Records of the log that may contain the bytes ?4: those that do, and those with escapes, in which they may be written otherwise.
SELECT offset, payload, ts_ms, headers FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3
    AND (instr(payload, ?4) OR instr(payload, X'5C'))
ORDER BY offset

-- name: payloads
-- The payloads of adjacent records of the log, joined by commas, their sizes, the sum of these, and their number.
SELECT CAST(group_concat(CAST(payload AS TEXT), ',') AS BLOB), group_concat(size, ','), sum(size), count(*) FROM (
    SELECT offset, payload, length(payload) AS size FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset
)

-- name: places
-- The ids of the first and the last record from ?2 to before ?3 in the log.
SELECT (SELECT id FROM wal_places WHERE sid = ?1 AND offset = ?2), (SELECT id FROM wal_places WHERE sid = ?1 AND offset = ?3 - 1)

-- name: lines
-- The payloads of a stream with ids from ?2 to ?3, joined by line feeds. Walking the log alone takes a sixth less than by its index.
SELECT CAST(group_concat(payload, char(10)) AS BLOB) FROM (
    SELECT payload FROM wal_log WHERE id BETWEEN ?2 AND ?3 AND sid = ?1 ORDER BY id
)

-- name: append_times
-- When the records of a range of offsets of the log were appended.
SELECT ts_ms FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: stream_of
SELECT stream FROM streams WHERE sid = ?1

-- name: plan
-- What the companions of a stream contain now.
SELECT generation, plan_hash, plan_json FROM search_companion_plans WHERE stream = ?1
