-- What streams ask of their records.

-- name: schema
SELECT schema_json FROM schemas WHERE stream = ?1

-- name: streams_with_schemas
SELECT stream FROM schemas

-- name: put_schema
INSERT INTO schemas (stream, schema_json, updated_at_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (stream) DO UPDATE SET schema_json = excluded.schema_json, updated_at_ms = excluded.updated_at_ms

-- name: drop_schema
DELETE FROM schemas WHERE stream = ?1

-- name: set_schema_version
UPDATE streams SET schema_version = ?2, updated_at_ms = max(updated_at_ms, ?3) WHERE sid = ?1

-- name: profile
SELECT profile_json FROM stream_profiles WHERE stream = ?1

-- name: put_profile
INSERT INTO stream_profiles (stream, profile_json, updated_at_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (stream) DO UPDATE SET profile_json = excluded.profile_json, updated_at_ms = excluded.updated_at_ms

-- name: drop_profile
DELETE FROM stream_profiles WHERE stream = ?1

-- name: set_profile
UPDATE streams SET profile = ?2, updated_at_ms = max(updated_at_ms, ?3) WHERE sid = ?1

-- name: begin_touch
-- Rows are there for streams that are waited for, and for no others.
INSERT INTO stream_touch_state (stream, processed_through, updated_at_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (stream) DO NOTHING

-- name: end_touch
DELETE FROM stream_touch_state WHERE stream = ?1

-- name: drop_templates
DELETE FROM live_templates WHERE stream = ?1

-- name: unruly_streams
-- Streams whose rows say that they have rules which are not there, or the other way round. ?1 how many are named.
SELECT stream FROM streams AS s
WHERE (s.schema_version IS NULL) <> (NOT EXISTS (SELECT 1 FROM schemas AS r WHERE r.stream = s.stream))
   OR s.schema_version <> (SELECT json_extract(r.schema_json, '$.currentVersion') FROM schemas AS r WHERE r.stream = s.stream)
   OR (s.profile = 'generic') <> (NOT EXISTS (SELECT 1 FROM stream_profiles AS p WHERE p.stream = s.stream))
   OR s.profile <> (SELECT json_extract(p.profile_json, '$.kind') FROM stream_profiles AS p WHERE p.stream = s.stream)
LIMIT ?1

-- name: stray_rules
-- Rows of streams that are not there, or are not waited for.
SELECT 'schemas', stream FROM schemas WHERE stream NOT IN (SELECT stream FROM streams)
UNION ALL SELECT 'stream_profiles', stream FROM stream_profiles WHERE stream NOT IN (SELECT stream FROM streams)
UNION ALL SELECT 'stream_touch_state', t.stream FROM stream_touch_state AS t
    LEFT JOIN stream_profiles AS p ON p.stream = t.stream
    WHERE coalesce(json_extract(p.profile_json, '$.touch.enabled'), 0) = 0
UNION ALL SELECT 'live_templates', t.stream FROM live_templates AS t
    LEFT JOIN stream_profiles AS p ON p.stream = t.stream
    WHERE coalesce(json_extract(p.profile_json, '$.touch.enabled'), 0) = 0
LIMIT ?1
