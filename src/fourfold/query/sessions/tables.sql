-- The tables of sessions. The data of deleted sessions is not shown.
--
-- ?1 and ?2 bound the position of a row: after ?1, until ?2. The cut, a number, is used where a row has changed since: a
-- turn has the state after its newest event at or before the cut.

-- name: scan
-- Wraps a query: a sample row that fixes the type of every column, then the selected rows.
SELECT {samples} {parts}

-- name: part
UNION ALL SELECT {columns} FROM ({query}) WHERE {conditions}

-- name: horizon
-- None: see whole_after.
SELECT 0

-- name: whole_after
-- Always true: events are only removed with a deleted session, which is not shown.
SELECT ?1 >= 0

-- name: collected
-- Always false: see whole_after.
SELECT 0

-- name: first_after
-- The first event after a time.
SELECT position FROM events WHERE at > ?1 ORDER BY position LIMIT 1

-- name: greatest_key
SELECT coalesce(max(session_key), 0) FROM sessions

-- name: count_events
SELECT position, 1 FROM events WHERE position > ?1 AND position <= ?2 ORDER BY position LIMIT ?3

-- name: session_keys
SELECT session_key, session_id AS session FROM sessions WHERE deleted_at IS NULL

-- name: events
SELECT
    s.session_id AS session, e.event_id AS event_id, e.position AS position, e.type AS type, e.at AS time,
    CASE e.entity WHEN 1 THEN 'message' WHEN 2 THEN 'turn' WHEN 3 THEN 'step' WHEN 4 THEN 'eval' END AS entity,
    e.entity_id AS entity_id, e.request_key AS request_key, e.body AS body, 'sha256:' || lower(hex(e.digest)) AS digest
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE s.deleted_at IS NULL

-- name: sessions
-- A session whose events are all after the cut did not exist yet.
SELECT
    s.session_id AS session, s.created_at AS created, s.deleted_at AS deleted, s.purged AS purged,
    coalesce(e.event_id, 0) AS events, e.position AS position, e.at AS time
FROM sessions AS s LEFT JOIN events AS e ON e.session_key = s.session_key AND e.event_id = (
    SELECT l.event_id FROM events AS l
    WHERE l.session_key = s.session_key AND l.position <= {cut} ORDER BY l.event_id DESC LIMIT 1
)
WHERE e.event_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM events AS l WHERE l.session_key = s.session_key)

-- name: turns
-- Tokens are the field of that name, or else the sum of all fields ending in `_tokens`.
SELECT
    s.session_id AS session, e.entity_id AS turn_id, e.event_id AS event_id, e.position AS position,
    (
        SELECT f.at FROM events AS f
        WHERE f.session_key = e.session_key AND f.entity = 2 AND f.entity_id = e.entity_id ORDER BY f.event_id LIMIT 1
    ) AS started,
    e.at AS time, CAST(e.body ->> '$.turn.status' AS TEXT) AS outcome,
    CASE json_type(e.body, '$.turn.steps') WHEN 'integer' THEN e.body ->> '$.turn.steps' END AS steps,
    coalesce(
        CASE WHEN json_type(e.body, '$.turn.usage.tokens') IN ('integer', 'real') THEN e.body ->> '$.turn.usage.tokens' END,
        (
            SELECT sum(CAST(u.value AS REAL)) FROM json_each(e.body, '$.turn.usage') AS u
            WHERE u.key GLOB '*_tokens' AND u.type IN ('integer', 'real')
        )
    ) AS tokens,
    CASE WHEN json_type(e.body, '$.turn.usage.cost') IN ('integer', 'real') THEN e.body ->> '$.turn.usage.cost' END AS cost,
    e.body -> '$.turn.usage' AS usage, e.body -> '$.turn.error' AS error, e.body -> '$.turn' AS turn
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.entity = 2 AND s.deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM events AS n
    WHERE n.session_key = e.session_key AND n.entity = 2 AND n.entity_id = e.entity_id AND n.event_id > e.event_id
      AND n.position <= {cut}
)

-- name: steps
SELECT
    s.session_id AS session, e.entity_id AS step_id, e.event_id AS event_id, e.position AS position, e.at AS time,
    CASE json_type(e.body, '$.step.turn_id') WHEN 'integer' THEN e.body ->> '$.step.turn_id' END AS turn_id,
    CAST(e.body ->> '$.step.status' AS TEXT) AS status, e.body -> '$.step.usage' AS usage, e.body -> '$.step' AS step
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.entity = 3 AND s.deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM events AS n
    WHERE n.session_key = e.session_key AND n.entity = 3 AND n.entity_id = e.entity_id AND n.event_id > e.event_id
      AND n.position <= {cut}
)

-- name: messages
SELECT
    s.session_id AS session, e.entity_id AS message_id, e.event_id AS event_id, e.position AS position, e.at AS time,
    e.type = 'session/compacted' AS compaction,
    CASE json_type(e.body, '$.message.turn_id') WHEN 'integer' THEN e.body ->> '$.message.turn_id' END AS turn_id,
    CAST(e.body ->> '$.message.role' AS TEXT) AS role, e.body -> '$.message.content' AS content, e.body -> '$.message' AS message
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.entity = 1 AND s.deleted_at IS NULL

-- name: evals
SELECT
    s.session_id AS session, e.entity_id AS eval_id, e.event_id AS event_id, e.position AS position, e.at AS time,
    CASE json_type(e.body, '$.eval.turn_id') WHEN 'integer' THEN e.body ->> '$.eval.turn_id' END AS turn_id,
    CAST(e.body ->> '$.eval.name' AS TEXT) AS name, CAST(e.body ->> '$.eval.status' AS TEXT) AS status, e.body -> '$.eval' AS eval
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.entity = 4 AND s.deleted_at IS NULL

-- name: heads
SELECT
    s.session_id AS session, h.head_id AS head, h.basis AS basis, CAST(e.body ->> '$.head.kind' AS TEXT) AS kind,
    e.body ->> '$.head.event_range[0]' AS first_event, e.body ->> '$.head.event_range[1]' AS last_event,
    e.body ->> '$.head.turn_id' AS turn_id, h.event_id AS event_id, e.position AS position, e.at AS time,
    e.body -> '$.head' AS content
FROM heads AS h JOIN sessions AS s USING (session_key)
CROSS JOIN events AS e ON e.session_key = h.session_key AND e.event_id = h.event_id
WHERE s.deleted_at IS NULL

-- name: edges
SELECT
    s.session_id AS session, d.edge_id AS edge, CAST(e.body ->> '$.edge.type' AS TEXT) AS type, d.from_session AS from_session,
    d.to_session AS to_session, d.from_head AS from_head, d.to_head AS to_head, d.event_id AS event_id,
    e.position AS position, e.at AS time, e.body -> '$.edge' AS content
FROM edges AS d JOIN sessions AS s USING (session_key)
CROSS JOIN events AS e ON e.session_key = d.session_key AND e.event_id = d.event_id
WHERE s.deleted_at IS NULL

-- name: payloads
-- The largest payloads are stored as files, not here.
SELECT
    'sha256:' || lower(hex(hash)) AS hash, size, strftime('%Y-%m-%dT%H:%M:%SZ', touched, 'unixepoch') AS touched,
    data IS NULL AS is_file, data
FROM payloads

-- name: tail
-- The input of the fold of views for each session: its newest snapshot at or before the cut (in the first row, which
-- exists even without events), and the later events. Sessions are ordered by key, events by the log, both by an index.
SELECT {samples} UNION ALL SELECT {columns} FROM (
    SELECT
        s.session_id AS session, b.event_id AS base,
        CASE WHEN coalesce(e.event_id, 0) IN (0, b.event_id + 1) THEN b.state END AS state,
        CASE WHEN e.position IS NULL THEN x.position ELSE e.position END AS position,
        e.event_id AS event_id, e.type AS type, e.at AS at, e.entity AS entity, e.entity_id AS entity_id,
        e.request_key AS request_key, e.body AS body, e.digest AS digest
    FROM sessions AS s
    LEFT JOIN snapshots AS b ON b.session_key = s.session_key AND b.event_id = (
        SELECT p.event_id FROM snapshots AS p WHERE p.session_key = s.session_key AND p.event_id <= {event} AND (
            SELECT q.position FROM events AS q WHERE q.session_key = p.session_key AND q.event_id = p.event_id
        ) <= {cut} ORDER BY p.event_id DESC LIMIT 1
    )
    LEFT JOIN events AS x ON x.session_key = s.session_key AND x.event_id = b.event_id
    LEFT JOIN events AS e ON e.session_key = s.session_key AND e.event_id > coalesce(b.event_id, 0)
        AND e.event_id <= {event} AND e.position <= {cut}
    WHERE s.deleted_at IS NULL AND s.session_key > ?1 AND s.session_key <= ?2 AND (
        b.event_id IS NOT NULL OR e.event_id IS NOT NULL
        OR NOT EXISTS (SELECT 1 FROM events AS l WHERE l.session_key = s.session_key)
    ) AND {conditions}
    ORDER BY s.session_key, e.event_id LIMIT -1
)

-- name: touched_since
-- Only sessions with an event after a position.
(
    SELECT l.position FROM events AS l
    WHERE l.session_key = s.session_key AND l.position <= {cut} ORDER BY l.event_id DESC LIMIT 1
) > {since}

-- name: generation
-- The numbers of deleted sessions and of sessions without events, which change without a new position.
SELECT ((SELECT count(*) FROM sessions WHERE deleted_at IS NOT NULL) << 32) + (
    SELECT count(*) FROM sessions AS s
    WHERE s.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM events AS e WHERE e.session_key = s.session_key)
)
