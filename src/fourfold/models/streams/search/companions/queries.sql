-- name: plan
-- What the companions of a stream contain now.
SELECT generation, plan_hash, plan_json FROM search_companion_plans WHERE stream = ?1

-- name: put_plan
INSERT INTO search_companion_plans (stream, generation, plan_hash, plan_json, updated_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (stream) DO UPDATE SET generation = excluded.generation, plan_hash = excluded.plan_hash,
    plan_json = excluded.plan_json, updated_at_ms = excluded.updated_at_ms

-- name: retire_companions
INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes)
SELECT object_key, stream, size_bytes FROM search_segment_companions WHERE stream = ?1

-- name: drop_companions
DELETE FROM search_segment_companions WHERE stream = ?1

-- name: manifest_due
UPDATE manifests SET generation = max(generation, uploaded_generation + 1) WHERE stream = ?1

-- name: planned_streams
-- Streams with a plan, after ?1: at most ?2.
SELECT p.stream, s.incarnation FROM search_companion_plans AS p JOIN streams AS s ON s.stream = p.stream
WHERE p.stream > ?1 ORDER BY p.stream LIMIT ?2

-- name: due_segments
-- Published segments of a stream without a companion of the generation ?2, the newest first: at most ?3.
SELECT g.segment_id, g.segment_index, g.start_offset, g.end_offset, g.size_bytes, g.payload_bytes, g.block_count,
       g.last_append_ms, g.digest, g.local_path, g.uploaded_at_ms
FROM segments AS g
LEFT JOIN search_segment_companions AS c ON c.stream = g.stream AND c.segment_index = g.segment_index
WHERE g.stream = ?1 AND g.uploaded_at_ms IS NOT NULL AND c.plan_generation IS NOT ?2
ORDER BY g.start_offset DESC LIMIT ?3

-- name: segment_index_of
SELECT segment_index FROM segments WHERE segment_id = ?1 AND uploaded_at_ms IS NOT NULL

-- name: companion
SELECT object_key, plan_generation, size_bytes FROM search_segment_companions WHERE stream = ?1 AND segment_index = ?2

-- name: put_companion
INSERT OR REPLACE INTO search_segment_companions (stream, segment_index, object_key, plan_generation, sections_json,
                                                  section_sizes_json, size_bytes, primary_timestamp_min_ms,
                                                  primary_timestamp_max_ms, updated_at_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: companions
-- The companions of a stream with the offsets of their segments, from the segment ?2 on.
SELECT g.start_offset, c.object_key, c.plan_generation, c.sections_json, c.section_sizes_json, c.size_bytes,
       c.primary_timestamp_min_ms, c.primary_timestamp_max_ms
FROM search_segment_companions AS c JOIN segments AS g ON g.stream = c.stream AND g.segment_index = c.segment_index
WHERE c.stream = ?1 AND c.segment_index >= ?2 ORDER BY c.segment_index

-- name: segment_at
SELECT segment_index FROM segments WHERE stream = ?1 AND start_offset = ?2

-- name: status
SELECT p.generation, count(c.segment_index), coalesce(sum(c.size_bytes), 0)
FROM search_companion_plans AS p
LEFT JOIN search_segment_companions AS c ON c.stream = p.stream AND c.plan_generation = p.generation
WHERE p.stream = ?1 GROUP BY p.stream
