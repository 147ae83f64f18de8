-- name: last_position
-- The newest position. The counter's row is only a floor, lifted by a restore or a purge: the log itself is the counter.
SELECT max(
    (SELECT coalesce(max(position), 0) FROM events),
    (SELECT value FROM kernel_sequence WHERE name = 'position_floor')
)

-- name: claim_position
SELECT ?1 + max(
    (SELECT coalesce(max(position), 0) FROM events),
    (SELECT value FROM kernel_sequence WHERE name = 'position_floor')
)

-- name: lift_position
-- Only upwards: a position is never handed out again.
UPDATE kernel_sequence SET value = max(value, ?1) WHERE name = 'position_floor'

-- name: seed_position
INSERT OR IGNORE INTO kernel_sequence (name, value) VALUES ('position_floor', 0)

-- name: session
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions WHERE session_id = ?

-- name: session_by_key
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions WHERE session_key = ?

-- name: sessions
-- In the order of creation, after one of them.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE session_key > ?1 AND (?2 OR deleted_at IS NULL) ORDER BY session_key LIMIT ?3

-- name: sessions_with_prefix
-- The same of those whose ids lie from ?4 to below ?5. By the index of ids: there may be many other sessions.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE session_id >= ?4 AND session_id < ?5 AND +session_key > ?1 AND (?2 OR deleted_at IS NULL)
ORDER BY +session_key LIMIT ?3

-- name: newest_sessions
-- In the reverse order of creation, before one of them.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE session_key < ?1 AND (?2 OR deleted_at IS NULL) ORDER BY session_key DESC LIMIT ?3

-- name: newest_sessions_with_prefix
-- The same of those whose ids are from ?4 to below ?5, by the index of ids.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE session_id >= ?4 AND session_id < ?5 AND +session_key < ?1 AND (?2 OR deleted_at IS NULL)
ORDER BY +session_key DESC LIMIT ?3

-- name: session_summary
-- Id and time of the newest event up to an id, the status that the newest event with an effect on it has set by then, and
-- the status of the newest turn.
SELECT coalesce(max(e.event_id), 0), max(e.at), (
    SELECT CASE
            WHEN s.type <> 'session/started' THEN substr(s.type, 9)
            WHEN json_valid(s.body) AND json_type(s.body, '$.session.status') = 'text'
            THEN json_extract(s.body, '$.session.status')
        END
    FROM events AS s INDEXED BY idx_events_status
    WHERE s.session_key = ?1 AND s.event_id <= ?2 AND s.entity IS NULL
        AND s.type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
    ORDER BY s.event_id DESC LIMIT 1
), (
    SELECT CASE
            WHEN json_valid(t.body) AND json_type(t.body, '$.turn.status') = 'text'
            THEN json_extract(t.body, '$.turn.status')
        END
    FROM events AS t INDEXED BY idx_events_entity
    WHERE t.session_key = ?1 AND t.entity = 2 AND t.event_id <= ?2
    ORDER BY t.entity_id DESC, t.event_id DESC LIMIT 1
)
FROM (
    SELECT event_id, at FROM events WHERE session_key = ?1 AND event_id <= ?2 ORDER BY event_id DESC LIMIT 1
) AS e

-- name: sessions_of_family
-- The same of those whose ids have ?3 up to their first slash, and are not deleted: in the order of the index.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE substr(session_id, 1, instr(session_id, '/')) = ?3 AND deleted_at IS NULL AND session_key > ?1
ORDER BY session_key LIMIT ?2

-- name: newest_sessions_of_family
-- The same in the reverse order, before one of them.
SELECT session_key, session_id, created_at, deleted_at, purged FROM sessions
WHERE substr(session_id, 1, instr(session_id, '/')) = ?3 AND deleted_at IS NULL AND session_key < ?1
ORDER BY session_key DESC LIMIT ?2

-- Sessions by the second of their newest event and their key: after (?1, ?2), at most ?3, up to the second ?4, with the
-- status or the kind ?5.

-- name: sessions_by_update
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_updated JOIN sessions AS s USING (session_key)
WHERE (i.updated, i.session_key) > (?1, ?2) AND i.updated <= ?4 ORDER BY i.updated, i.session_key LIMIT ?3

-- name: sessions_by_status
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_status JOIN sessions AS s USING (session_key)
WHERE i.status = ?5 AND (i.updated, i.session_key) > (?1, ?2) AND i.updated <= ?4
ORDER BY i.updated, i.session_key LIMIT ?3

-- name: sessions_by_kind
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_kind JOIN sessions AS s USING (session_key)
WHERE i.kind = ?5 AND (i.updated, i.session_key) > (?1, ?2) AND i.updated <= ?4
ORDER BY i.updated, i.session_key LIMIT ?3

-- The same in the reverse order, down to the second ?4.

-- name: newest_sessions_by_update
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_updated JOIN sessions AS s USING (session_key)
WHERE (i.updated, i.session_key) < (?1, ?2) AND i.updated >= ?4
ORDER BY i.updated DESC, i.session_key DESC LIMIT ?3

-- name: newest_sessions_by_status
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_status JOIN sessions AS s USING (session_key)
WHERE i.status = ?5 AND (i.updated, i.session_key) < (?1, ?2) AND i.updated >= ?4
ORDER BY i.updated DESC, i.session_key DESC LIMIT ?3

-- name: newest_sessions_by_kind
SELECT i.updated, s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM session_index AS i INDEXED BY idx_session_index_kind JOIN sessions AS s USING (session_key)
WHERE i.kind = ?5 AND (i.updated, i.session_key) < (?1, ?2) AND i.updated >= ?4
ORDER BY i.updated DESC, i.session_key DESC LIMIT ?3

-- name: session_kind
-- The kind that the newest `session/started` up to an event has set.
SELECT CASE
        WHEN json_valid(body) AND json_type(body, '$.session.kind') = 'text'
        THEN json_extract(body, '$.session.kind')
    END
FROM events INDEXED BY idx_events_status
WHERE session_key = ?1 AND event_id <= ?2 AND type = 'session/started' AND entity IS NULL
    AND type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
ORDER BY event_id DESC LIMIT 1

-- name: sessions_of_run
-- The sessions of a family with a checkpoint that a run made, and those whose checkpoints do not tell.
SELECT s.session_key, s.session_id, s.created_at, s.deleted_at, s.purged
FROM sessions AS s
WHERE s.session_key IN (
    SELECT e.session_key FROM events AS e
    WHERE CASE WHEN json_valid(e.body) THEN
            coalesce(json_extract(e.body, '$.step.metadata.run_id'), json_type(e.body, '$.step.metadata_item'))
        END IN (?2, 'object')
        AND e.entity = 3 AND e.request_key >= 'c' AND e.request_key < 'd'
)
AND substr(s.session_id, 1, instr(s.session_id, '/')) = ?1 AND s.deleted_at IS NULL
ORDER BY s.session_key

-- name: next_session_key
SELECT coalesce(max(session_key), 0) + 1 FROM sessions

-- name: insert_session
INSERT INTO sessions (session_key, session_id, created_at, seal) VALUES (?, ?, ?, ?)

-- name: mark_session
UPDATE sessions SET deleted_at = ?2, purged = ?3, seal = ?4 WHERE session_key = ?1

-- name: index_session
-- Unless the newest event is in the second that the index has, and has set no status.
INSERT OR REPLACE INTO session_index (session_key, kind, status, updated)
SELECT session_key, kind, status, updated FROM session_facts
WHERE session_key = ?1 AND NOT EXISTS (SELECT 1 FROM session_index WHERE session_key = ?1 AND updated = ?2)

-- name: unindex_session
DELETE FROM session_index WHERE session_key = ?

-- name: insert_event
INSERT INTO events (
    position, session_key, event_id, type, at, entity, entity_id, request_key, body, digest, position_check
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: events
SELECT position, event_id, type, at, entity, entity_id, request_key, body, digest FROM events
WHERE session_key = ?1 AND event_id > ?2 AND event_id <= ?3 ORDER BY event_id LIMIT ?4

-- name: last_event
SELECT coalesce(max(event_id), 0) FROM events WHERE session_key = ?

-- name: events_of_request
-- By position, which orders the events of a session as their ids do: the index of request keys has it, and an order by
-- id would make SQLite walk through the whole session instead.
SELECT position, event_id, type, at, entity, entity_id, request_key, body, digest FROM events
WHERE session_key = ?1 AND request_key = ?2 ORDER BY position

-- name: all_events
-- The log of all sessions, after a position; what belongs to a deleted session is not shown.
SELECT s.session_id, e.position, e.event_id, e.type, e.at, e.entity, e.entity_id, e.request_key, e.body, e.digest
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.position > ?1 AND s.deleted_at IS NULL ORDER BY e.position LIMIT ?2

-- name: entities
-- The entities of one kind with ids from ?3 to ?4, each as its newest event at or before ?5 left it. Ids have no gaps, and
-- the newest event of each is found at the end of its part of the index, however often it was replaced.
WITH RECURSIVE ids (id) AS (SELECT ?3 UNION ALL SELECT id + 1 FROM ids WHERE id < ?4)
SELECT e.position, e.event_id, e.type, e.at, e.entity, e.entity_id, e.request_key, e.body, e.digest
FROM ids JOIN events AS e ON e.session_key = ?1 AND e.event_id = (
    SELECT max(event_id) FROM events WHERE session_key = ?1 AND entity = ?2 AND entity_id = ids.id AND event_id <= ?5
)
ORDER BY ids.id

-- name: messages_from
-- The messages that came with events from ?2 to ?3, oldest first.
SELECT position, event_id, type, at, entity, entity_id, request_key, body, digest FROM events
WHERE session_key = ?1 AND +entity = 1 AND event_id >= ?2 AND event_id <= ?3 ORDER BY event_id LIMIT ?4

-- name: events_with_refs
-- Events whose body may refer to a payload, in the order of the log of all sessions.
SELECT e.session_key, e.position, e.event_id, e.type, e.at, e.entity, e.entity_id, e.request_key, e.body, e.digest
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.position > ?1 AND s.purged = 0 AND instr(e.body, '{"~ref":{"id":"sha256:') > 0 ORDER BY e.position LIMIT ?2

-- name: session_events_with_refs
SELECT session_key, position, event_id, type, at, entity, entity_id, request_key, body, digest FROM events
WHERE session_key = ?1 AND event_id > ?2 AND instr(body, '{"~ref":{"id":"sha256:') > 0 ORDER BY event_id LIMIT ?3

-- name: insert_head
INSERT INTO heads (head_id, session_key, event_id, basis) VALUES (?, ?, ?, ?)

-- name: head
SELECT session_key, event_id FROM heads WHERE head_id = ?

-- name: heads_count
SELECT count(*) FROM heads WHERE session_key = ?1 AND event_id <= ?2

-- name: head_events
SELECT event_id FROM heads WHERE session_key = ?1 AND event_id <= ?2 ORDER BY event_id LIMIT ?4 OFFSET ?3

-- name: heads_on
-- The heads that were published on top of one, but not those of deleted sessions.
SELECT h.head_id FROM heads AS h JOIN sessions AS s USING (session_key)
WHERE h.basis = ? AND s.deleted_at IS NULL ORDER BY h.session_key, h.event_id

-- name: insert_edge
INSERT INTO edges (session_key, edge_id, event_id, from_session, to_session, from_head, to_head)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: edge
SELECT event_id FROM edges WHERE session_key = ?1 AND edge_id = ?2

-- name: edges_count
SELECT count(*) FROM edges WHERE session_key = ?1 AND event_id <= ?2

-- name: edge_events
SELECT event_id FROM edges WHERE session_key = ?1 AND event_id <= ?2 ORDER BY event_id LIMIT ?4 OFFSET ?3

-- name: edges_of_session
-- Where the edges stand that begin or end at a session, in whichever log.
SELECT session_key, event_id FROM edges WHERE from_session = ?1
UNION SELECT session_key, event_id FROM edges WHERE to_session = ?1 ORDER BY session_key, event_id

-- name: heads_before
-- The heads from which edges lead to a head, by the logs of sessions that are not deleted.
SELECT DISTINCT e.from_head FROM edges AS e JOIN sessions AS s USING (session_key)
WHERE e.to_head = ? AND e.from_head IS NOT NULL AND s.deleted_at IS NULL ORDER BY e.from_head

-- name: heads_after
SELECT DISTINCT e.to_head FROM edges AS e JOIN sessions AS s USING (session_key)
WHERE e.from_head = ? AND s.deleted_at IS NULL ORDER BY e.to_head

-- name: insert_snapshot
INSERT OR REPLACE INTO snapshots (session_key, event_id, state) VALUES (?, ?, ?)

-- name: snapshot_before
SELECT event_id, state FROM snapshots WHERE session_key = ?1 AND event_id <= ?2 ORDER BY event_id DESC LIMIT 1

-- name: payload_size
SELECT size FROM payloads WHERE hash = ?

-- name: payload
SELECT size, data FROM payloads WHERE hash = ?

-- name: put_payload
-- A row that is there keeps its bytes, unless they have another length. Its age is refreshed at most once in a while,
-- because that rewrites the row.
INSERT INTO payloads (hash, size, touched, data) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (hash) DO UPDATE SET size = excluded.size, touched = excluded.touched, data = excluded.data
WHERE payloads.touched < excluded.touched - ?5 OR length(payloads.data) IS NOT length(excluded.data)

-- name: payloads
SELECT hash, size, touched, data IS NULL FROM payloads WHERE hash > ?1 ORDER BY hash LIMIT ?2

-- name: delete_payload
DELETE FROM payloads WHERE hash = ?

-- name: purge_events
DELETE FROM events WHERE session_key = ?1 AND event_id > ?2

-- name: purge_heads
DELETE FROM heads WHERE session_key = ?1 AND event_id > ?2

-- name: purge_edges
DELETE FROM edges WHERE session_key = ?1 AND event_id > ?2

-- name: purge_snapshots
DELETE FROM snapshots WHERE session_key = ?1 AND event_id > ?2

-- name: text_until
SELECT until FROM event_text_state

-- name: set_text_until
UPDATE event_text_state SET until = ?1

-- name: insert_text
INSERT INTO event_text (rowid, session, text) VALUES (?, ?, ?)

-- name: purge_texts
DELETE FROM event_text WHERE rowid IN (SELECT position FROM events WHERE session_key = ?1 AND event_id > ?2)

-- Hits of an expression of FTS5: ?1 the expression, ?2 the greatest position, ?3 the last time, ?4 the greatest event id,
-- ?5 and ?6 the bounds of session ids, ?7 the types of events as a JSON array, ?8 and ?9 limit and offset.

-- name: text_hits_by_score
SELECT e.position, bm25(event_text, 0.0, 1.0) AS score
FROM event_text CROSS JOIN events AS e ON e.position = event_text.rowid
CROSS JOIN sessions AS s ON s.session_key = e.session_key
WHERE event_text MATCH ?1 AND event_text.rowid <= ?2 AND e.at <= ?3 AND e.event_id <= ?4
    AND s.deleted_at IS NULL AND s.session_id >= ?5 AND s.session_id < ?6
    AND e.type IN (SELECT value FROM json_each(?7))
ORDER BY score, e.position DESC LIMIT ?8 OFFSET ?9

-- name: text_hits_by_position
SELECT e.position, bm25(event_text, 0.0, 1.0)
FROM event_text CROSS JOIN events AS e ON e.position = event_text.rowid
CROSS JOIN sessions AS s ON s.session_key = e.session_key
WHERE event_text MATCH ?1 AND event_text.rowid <= ?2 AND e.at <= ?3 AND e.event_id <= ?4
    AND s.deleted_at IS NULL AND s.session_id >= ?5 AND s.session_id < ?6
    AND e.type IN (SELECT value FROM json_each(?7))
ORDER BY event_text.rowid DESC LIMIT ?8 OFFSET ?9

-- name: event_at_position
SELECT s.session_id, e.position, e.event_id, e.type, e.at, e.entity, e.entity_id, e.request_key, e.body, e.digest
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE e.position = ?1

-- name: verify_text_rows
-- The positions of rows of words from ?1 to ?2.
SELECT id FROM event_text_docsize WHERE id >= ?1 AND id <= ?2 ORDER BY id

-- name: verify_text_words
SELECT EXISTS (SELECT 1 FROM event_text WHERE event_text MATCH ?1 AND rowid = ?2)

-- name: retention_policies
SELECT prefix, max_age_s, keep_latest, updated_at FROM retention_policies ORDER BY prefix

-- name: put_retention_policy
INSERT OR REPLACE INTO retention_policies (prefix, max_age_s, keep_latest, updated_at) VALUES (?, ?, ?, ?)

-- name: delete_retention_policy
DELETE FROM retention_policies WHERE prefix = ?

-- name: lease
SELECT session_key, epoch, holder, until_ms, resumed FROM leases WHERE session_key = ?

-- name: held_leases
-- Leases that were not released, by session id, of ids after ?1 that begin with ?2.
SELECT s.session_id, l.session_key, l.epoch, l.holder, l.until_ms, l.resumed
FROM leases AS l INDEXED BY idx_leases_held JOIN sessions AS s USING (session_key)
WHERE l.holder IS NOT NULL AND s.deleted_at IS NULL AND s.session_id > ?1 AND substr(s.session_id, 1, length(?2)) = ?2
ORDER BY s.session_id LIMIT ?3

-- name: put_lease
INSERT INTO leases (session_key, epoch, holder, until_ms, resumed) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (session_key) DO UPDATE SET epoch = ?2, holder = ?3, until_ms = ?4, resumed = ?5

-- name: extend_lease
UPDATE leases SET until_ms = ?2 WHERE session_key = ?1

-- name: verify_index
-- Sessions after a key, and whether their row of the index is that of their events. Deleted ones have none.
SELECT s.session_key, CAST(s.session_id AS BLOB), (i.kind, i.status, i.updated) IS (f.kind, f.status, f.updated)
FROM sessions AS s LEFT JOIN session_index AS i USING (session_key)
LEFT JOIN session_facts AS f ON f.session_key = s.session_key
WHERE s.session_key > ?1 ORDER BY s.session_key LIMIT ?2

-- name: verify_last_session
SELECT max(session_key) FROM sessions

-- name: verify_last_event
SELECT max(event_id) FROM events WHERE session_key = ?

-- name: verify_sessions
-- As bytes: damaged text may be no text any more, and must be seen all the same.
SELECT session_key, CAST(session_id AS BLOB), CAST(created_at AS BLOB), CAST(deleted_at AS BLOB), purged, seal
FROM sessions WHERE session_key > ?1 AND session_key <= ?2 ORDER BY session_key

-- name: verify_events
SELECT
    position, event_id, CAST(type AS BLOB), CAST(at AS BLOB), entity, entity_id, CAST(request_key AS BLOB),
    CAST(body AS BLOB), digest, position_check
FROM events WHERE session_key = ?1 AND event_id > ?2 ORDER BY event_id

-- name: verify_digest
SELECT digest FROM events WHERE session_key = ?1 AND event_id = ?2

-- name: verify_heads
SELECT event_id, CAST(head_id AS BLOB), event_id, CAST(basis AS BLOB)
FROM heads WHERE session_key = ?1 AND event_id > ?2 ORDER BY event_id

-- name: verify_edges
SELECT
    event_id, CAST(edge_id AS BLOB), event_id, CAST(from_session AS BLOB), CAST(to_session AS BLOB),
    CAST(from_head AS BLOB), CAST(to_head AS BLOB)
FROM edges WHERE session_key = ?1 AND event_id > ?2 ORDER BY event_id

-- name: verify_snapshots
SELECT event_id, CAST(state AS BLOB) FROM snapshots WHERE session_key = ?1 AND event_id > ?2 ORDER BY event_id

-- The sessions that rows belong to, each found with one search of an index, after a key.

-- name: verify_event_owners
WITH RECURSIVE owners (session_key) AS (
    SELECT min(session_key) FROM events WHERE session_key > ?1
    UNION ALL SELECT (SELECT min(session_key) FROM events WHERE session_key > owners.session_key) FROM owners
    WHERE session_key IS NOT NULL LIMIT ?2
)
SELECT session_key, EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_key = owners.session_key)
FROM owners WHERE session_key IS NOT NULL

-- name: verify_event_ids
SELECT position FROM events WHERE session_key = ? ORDER BY position

-- name: verify_head_owners
WITH RECURSIVE owners (session_key) AS (
    SELECT min(session_key) FROM heads WHERE session_key > ?1
    UNION ALL SELECT (SELECT min(session_key) FROM heads WHERE session_key > owners.session_key) FROM owners
    WHERE session_key IS NOT NULL LIMIT ?2
)
SELECT session_key, EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_key = owners.session_key)
FROM owners WHERE session_key IS NOT NULL

-- name: verify_head_ids
SELECT event_id FROM heads WHERE session_key = ? ORDER BY event_id

-- name: verify_edge_owners
WITH RECURSIVE owners (session_key) AS (
    SELECT min(session_key) FROM edges WHERE session_key > ?1
    UNION ALL SELECT (SELECT min(session_key) FROM edges WHERE session_key > owners.session_key) FROM owners
    WHERE session_key IS NOT NULL LIMIT ?2
)
SELECT session_key, EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_key = owners.session_key)
FROM owners WHERE session_key IS NOT NULL

-- name: verify_edge_ids
SELECT event_id FROM edges WHERE session_key = ? ORDER BY event_id

-- name: verify_snapshot_owners
WITH RECURSIVE owners (session_key) AS (
    SELECT min(session_key) FROM snapshots WHERE session_key > ?1
    UNION ALL SELECT (SELECT min(session_key) FROM snapshots WHERE session_key > owners.session_key) FROM owners
    WHERE session_key IS NOT NULL LIMIT ?2
)
SELECT session_key, EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_key = owners.session_key)
FROM owners WHERE session_key IS NOT NULL

-- name: verify_snapshot_ids
SELECT event_id FROM snapshots WHERE session_key = ? ORDER BY event_id

-- name: verify_payload
SELECT hash, size, touched, data FROM payloads WHERE hash = ?

-- name: verify_payloads
SELECT hash, size, touched, data FROM payloads WHERE hash > ?1 ORDER BY hash
