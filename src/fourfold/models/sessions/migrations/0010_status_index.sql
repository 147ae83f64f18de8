-- The index of status events, without work for other events: SQLite builds a list of types for each row that it compares
-- with it, so the rows of entities, which are most of a log, are excluded before.

DROP VIEW session_facts;
DROP INDEX idx_events_status;
CREATE INDEX idx_events_status ON events (session_key, event_id)
WHERE entity IS NULL AND type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error');

-- What a list is ordered and filtered by, computed from the events of each session.
CREATE VIEW session_facts AS
SELECT s.session_key, (
    SELECT CASE
            WHEN json_valid(k.body) AND json_type(k.body, '$.session.kind') = 'text'
            THEN json_extract(k.body, '$.session.kind')
        END
    FROM events AS k INDEXED BY idx_events_status
    WHERE k.session_key = s.session_key AND k.type = 'session/started' AND k.entity IS NULL
        AND k.type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
    ORDER BY k.event_id DESC LIMIT 1
) AS kind, (
    SELECT CASE
            WHEN t.type <> 'session/started' THEN substr(t.type, 9)
            WHEN json_valid(t.body) AND json_type(t.body, '$.session.status') = 'text'
            THEN json_extract(t.body, '$.session.status')
        END
    FROM events AS t INDEXED BY idx_events_status
    WHERE t.session_key = s.session_key AND t.entity IS NULL
        AND t.type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
    ORDER BY t.event_id DESC LIMIT 1
) AS status, substr(coalesce((
    SELECT e.at FROM events AS e WHERE e.session_key = s.session_key ORDER BY e.event_id DESC LIMIT 1
), s.created_at), 1, 19) AS updated
FROM sessions AS s
WHERE s.deleted_at IS NULL;
