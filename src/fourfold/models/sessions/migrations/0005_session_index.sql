-- Sessions by the time of their newest event, by status and by kind.

-- What a list is ordered and filtered by, computed from the events of each session.
CREATE VIEW session_facts AS
SELECT s.session_key, (
    SELECT CASE
            WHEN json_valid(k.body) AND json_type(k.body, '$.session.kind') = 'text'
            THEN json_extract(k.body, '$.session.kind')
        END
    FROM events AS k INDEXED BY idx_events_status
    WHERE k.session_key = s.session_key AND k.type = 'session/started'
        AND k.type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
    ORDER BY k.event_id DESC LIMIT 1
) AS kind, (
    SELECT CASE
            WHEN t.type <> 'session/started' THEN substr(t.type, 9)
            WHEN json_valid(t.body) AND json_type(t.body, '$.session.status') = 'text'
            THEN json_extract(t.body, '$.session.status')
        END
    FROM events AS t INDEXED BY idx_events_status
    WHERE t.session_key = s.session_key
        AND t.type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error')
    ORDER BY t.event_id DESC LIMIT 1
) AS status, substr(coalesce((
    SELECT e.at FROM events AS e WHERE e.session_key = s.session_key ORDER BY e.event_id DESC LIMIT 1
), s.created_at), 1, 19) AS updated
FROM sessions AS s
WHERE s.deleted_at IS NULL;

-- The facts of each session that is not deleted. `updated` is a whole second, so that most events change no row.
CREATE TABLE session_index (
  session_key INTEGER PRIMARY KEY REFERENCES sessions (session_key),
  kind TEXT,
  status TEXT,
  updated TEXT NOT NULL
) STRICT;

INSERT INTO session_index (session_key, kind, status, updated)
SELECT session_key, kind, status, updated FROM session_facts;

CREATE INDEX idx_session_index_updated ON session_index (updated, session_key);
CREATE INDEX idx_session_index_status ON session_index (status, updated, session_key);
CREATE INDEX idx_session_index_kind ON session_index (kind, updated, session_key);
