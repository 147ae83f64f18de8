-- Who waits for which changes: templates, and how far changes were looked at.

-- name: active
-- The templates of a stream that changes are held against, and how long each lives without being asked for.
SELECT template_id, entity, fields_json, encodings_json, state, active_from_source_offset, last_seen_at_ms, inactivity_ttl_ms
FROM live_templates WHERE stream = ?1 AND state = 'active' ORDER BY template_id

-- name: all_of_stream
-- All that are remembered.
SELECT template_id, entity, fields_json, encodings_json, state, active_from_source_offset, last_seen_at_ms, inactivity_ttl_ms
FROM live_templates WHERE stream = ?1 ORDER BY template_id

-- name: activate
-- One that is active stays so, from where it was; one that was retired starts again. ?1 stream, ?2 id, ?3 entity, ?4 fields,
-- ?5 encodings, ?6 now, ?7 how long it lives (NULL: as before), ?8 from which offset on, ?9 its default lifetime.
INSERT INTO live_templates (stream, template_id, entity, fields_json, encodings_json, state, created_at_ms, last_seen_at_ms,
                            inactivity_ttl_ms, active_from_source_offset)
VALUES (?1, ?2, ?3, ?4, ?5, 'active', ?6, ?6, coalesce(?7, ?9), ?8)
ON CONFLICT (stream, template_id) DO UPDATE SET
    active_from_source_offset = CASE state WHEN 'active' THEN active_from_source_offset ELSE ?8 END,
    state = 'active', last_seen_at_ms = max(last_seen_at_ms, ?6), inactivity_ttl_ms = coalesce(?7, inactivity_ttl_ms),
    retired_at_ms = NULL, retired_reason = NULL

-- name: count_active
SELECT count(*) FROM live_templates WHERE stream = ?1 AND state = 'active'

-- name: forget_more_than
-- Of those that were retired the newest are remembered: ?2 of them.
DELETE FROM live_templates WHERE stream = ?1 AND state = 'retired' AND template_id NOT IN (
    SELECT template_id FROM live_templates WHERE stream = ?1 AND state = 'retired'
    ORDER BY retired_at_ms DESC, template_id LIMIT ?2
)

-- name: seen
-- A template was requested: ?1 stream, ?2 id, ?3 when.
UPDATE live_templates SET last_seen_at_ms = ?3
WHERE stream = ?1 AND template_id = ?2 AND state = 'active' AND last_seen_at_ms < ?3

-- name: unseen
-- Active ones that were not requested within their lifetime, as far as recorded: ?1 now, ?2 the shortest of all times, ?3 how many.
SELECT stream, template_id, inactivity_ttl_ms FROM live_templates
WHERE state = 'active' AND last_seen_at_ms <= ?1 - ?2 AND last_seen_at_ms + inactivity_ttl_ms <= ?1
ORDER BY last_seen_at_ms LIMIT ?3

-- name: retire
-- One of them, unless it was seen meanwhile: ?1 stream, ?2 id, ?3 now.
UPDATE live_templates SET state = 'retired', retired_at_ms = ?3, retired_reason = 'inactivity'
WHERE stream = ?1 AND template_id = ?2 AND state = 'active' AND last_seen_at_ms + inactivity_ttl_ms <= ?3

-- name: forgettable
-- Those that were retired before ?1. None was seen after that. ?2 how many.
SELECT stream, template_id FROM live_templates
WHERE state = 'retired' AND last_seen_at_ms <= ?1 AND retired_at_ms <= ?1 ORDER BY last_seen_at_ms LIMIT ?2

-- name: forget
-- One of them, unless it was activated meanwhile.
DELETE FROM live_templates WHERE stream = ?1 AND template_id = ?2 AND state = 'retired'

-- name: processed_through
SELECT processed_through FROM stream_touch_state WHERE stream = ?1

-- name: put_processed_through
-- How far the changes of a stream were looked at. Nothing where it is gone, or is no longer waited for: ?1 sid, ?2 offset, ?3 now.
UPDATE stream_touch_state SET processed_through = ?2, updated_at_ms = ?3
WHERE stream = (SELECT stream FROM streams WHERE sid = ?1) AND processed_through < ?2
