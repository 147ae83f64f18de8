-- Walks over heads inside one file: ?1 is a JSON list of pairs [origin, head] to continue from, ?2 the cut. Each pair is
-- visited once, so that a walk ends even if damage has created a cycle. Deleted sessions are ignored.

-- name: back
-- The ancestors of some heads: their bases, and the origins of edges.
WITH RECURSIVE walk (origin, head) AS (
    SELECT value ->> '$[0]', value ->> '$[1]' FROM json_each(?1)
    UNION
    SELECT w.origin, h.basis
    FROM walk AS w CROSS JOIN heads AS h ON h.head_id = w.head
    CROSS JOIN sessions AS s ON s.session_key = h.session_key
    CROSS JOIN events AS e ON e.session_key = h.session_key AND e.event_id = h.event_id
    WHERE h.basis IS NOT NULL AND s.deleted_at IS NULL AND e.position <= ?2
    UNION
    SELECT w.origin, d.from_head
    FROM walk AS w CROSS JOIN edges AS d ON d.to_head = w.head
    CROSS JOIN sessions AS s ON s.session_key = d.session_key
    CROSS JOIN events AS e ON e.session_key = d.session_key AND e.event_id = d.event_id
    WHERE d.from_head IS NOT NULL AND s.deleted_at IS NULL AND e.position <= ?2
)
SELECT origin, head FROM walk

-- name: forth
-- The descendants of some heads.
WITH RECURSIVE walk (origin, head) AS (
    SELECT value ->> '$[0]', value ->> '$[1]' FROM json_each(?1)
    UNION
    SELECT w.origin, h.head_id
    FROM walk AS w CROSS JOIN heads AS h ON h.basis = w.head
    CROSS JOIN sessions AS s ON s.session_key = h.session_key
    CROSS JOIN events AS e ON e.session_key = h.session_key AND e.event_id = h.event_id
    WHERE s.deleted_at IS NULL AND e.position <= ?2
    UNION
    SELECT w.origin, d.to_head
    FROM walk AS w CROSS JOIN edges AS d ON d.from_head = w.head
    CROSS JOIN sessions AS s ON s.session_key = d.session_key
    CROSS JOIN events AS e ON e.session_key = d.session_key AND e.event_id = d.event_id
    WHERE s.deleted_at IS NULL AND e.position <= ?2
)
SELECT origin, head FROM walk

-- name: known_back
-- Which of some heads have ancestors in this file.
SELECT value FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM heads WHERE head_id = value) OR EXISTS (SELECT 1 FROM edges WHERE to_head = value)

-- name: known_forth
SELECT value FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM heads WHERE basis = value) OR EXISTS (SELECT 1 FROM edges WHERE from_head = value)
