-- The whole current schema. A database gets it from the migrations; a test compares the two.
--
-- The logs of all sessions, one row per event. All tables except `sessions`, `events`, `payloads` and `leases` are
-- derived from the events and can be rebuilt from them.

-- Rows are never deleted, so the id of a deleted session is never reused. `seal` is a digest of the other columns.
CREATE TABLE sessions (
    session_key INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    created_at  TEXT NOT NULL,
    deleted_at  TEXT,
    purged      INTEGER NOT NULL DEFAULT 0,
    seal        BLOB NOT NULL
);
-- The sessions of a family (the part of the id up to the first slash) in the order of their creation.
CREATE INDEX idx_sessions_family
ON sessions (substr(session_id, 1, instr(session_id, '/')), deleted_at, session_key);

-- The log. `position` orders the events of all sessions, `event_id` those of one session. `entity` is the kind of entity
-- of the event: 1 message, 2 turn, 3 step, 4 eval. `body` is canonical JSON without the values of the other columns.
-- `digest` covers this event and, through the previous digest, all earlier ones of its session; it is the same in every
-- store. `position` is not, so `position_check` (a CRC-32 of both) covers it.
CREATE TABLE events (
    position       INTEGER PRIMARY KEY,
    session_key    INTEGER NOT NULL REFERENCES sessions (session_key),
    event_id       INTEGER NOT NULL,
    type           TEXT NOT NULL,
    at             TEXT NOT NULL,
    entity         INTEGER,
    entity_id      INTEGER,
    request_key    TEXT,
    body           TEXT NOT NULL,
    digest         BLOB NOT NULL,
    position_check INTEGER NOT NULL
);
CREATE UNIQUE INDEX idx_events_session ON events (session_key, event_id);
-- The newest event of an entity is its state.
CREATE UNIQUE INDEX idx_events_entity ON events (session_key, entity, entity_id, event_id) WHERE entity IS NOT NULL;
-- Finds the events of a repeated request.
CREATE INDEX idx_events_request ON events (session_key, request_key) WHERE request_key IS NOT NULL;
-- LangGraph checkpoints by run. Where the metadata is serialised, the value is 'object'.
CREATE INDEX idx_events_run ON events (
    CASE WHEN json_valid(body) THEN
        coalesce(json_extract(body, '$.step.metadata.run_id'), json_type(body, '$.step.metadata_item'))
    END
) WHERE entity = 3 AND request_key >= 'c' AND request_key < 'd';
-- The events that set the status of a session. SQLite builds the list of types for each row that it compares with it, so
-- the rows of entities, which are most of a log, are excluded before.
CREATE INDEX idx_events_status ON events (session_key, event_id)
WHERE entity IS NULL AND type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error');

-- The event that published each head.
CREATE TABLE heads (
    head_id     TEXT NOT NULL PRIMARY KEY,
    session_key INTEGER NOT NULL REFERENCES sessions (session_key),
    event_id    INTEGER NOT NULL,
    basis       TEXT
);
CREATE INDEX idx_heads_session ON heads (session_key, event_id);
CREATE INDEX idx_heads_basis ON heads (basis) WHERE basis IS NOT NULL;

-- The event that added each edge, and its ends, which may be in another store.
CREATE TABLE edges (
    session_key  INTEGER NOT NULL REFERENCES sessions (session_key),
    edge_id      TEXT NOT NULL,
    event_id     INTEGER NOT NULL,
    from_session TEXT NOT NULL,
    to_session   TEXT NOT NULL,
    from_head    TEXT,
    to_head      TEXT NOT NULL,
    PRIMARY KEY (session_key, edge_id)
);
CREATE INDEX idx_edges_event ON edges (session_key, event_id);
CREATE INDEX idx_edges_from_session ON edges (from_session);
CREATE INDEX idx_edges_to_session ON edges (to_session);
CREATE INDEX idx_edges_from_head ON edges (from_head) WHERE from_head IS NOT NULL;
CREATE INDEX idx_edges_to_head ON edges (to_head);

-- The folded state at some events, so that opening a session folds only later ones.
CREATE TABLE snapshots (
    session_key INTEGER NOT NULL REFERENCES sessions (session_key),
    event_id    INTEGER NOT NULL,
    state       TEXT NOT NULL,
    PRIMARY KEY (session_key, event_id)
);

-- Large values by the SHA-256 of their canonical bytes. The largest are files; then `data` is NULL. `touched` is when the
-- value was last stored, in seconds: values without references are kept for a grace period.
CREATE TABLE payloads (
    hash    BLOB NOT NULL PRIMARY KEY,
    size    INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    data    BLOB
);

-- Requests that were sent with an idempotency key, and their results. A result is a reference to what was written.
CREATE TABLE idempotency (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  result BLOB NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

-- The newest lease of each session. The row stays after a release, with no holder, so that epochs only grow.
CREATE TABLE leases (
  session_key INTEGER PRIMARY KEY REFERENCES sessions (session_key),
  epoch INTEGER NOT NULL,
  holder TEXT,
  until_ms INTEGER NOT NULL,
  -- Claims of a session while a turn was recorded as running: [[event, epoch, holder, at_ms], ...], oldest first.
  resumed TEXT NOT NULL DEFAULT '[]'
) STRICT;

-- Leases that were not released.
CREATE INDEX idx_leases_held ON leases (session_key) WHERE holder IS NOT NULL;

-- The log with readable columns.
CREATE VIEW session_events AS
SELECT s.session_id, e.event_id, e.position, e.type AS event_type, e.at AS event_at, e.entity_id, e.request_key, e.body
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE s.deleted_at IS NULL;

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

-- The facts of each session that is not deleted. `updated` is a whole second, so that most events change no row.
CREATE TABLE session_index (
  session_key INTEGER PRIMARY KEY REFERENCES sessions (session_key),
  kind TEXT,
  status TEXT,
  updated TEXT NOT NULL
) STRICT;

CREATE INDEX idx_session_index_updated ON session_index (updated, session_key);
CREATE INDEX idx_session_index_status ON session_index (status, updated, session_key);
CREATE INDEX idx_session_index_kind ON session_index (kind, updated, session_key);

-- The words of messages, calls, summaries, errors and ends of turns: one row per event, by its position. `session` is
-- the word `s<session_key>`, so that a search of one session reads its rows only. The texts are not stored again.
CREATE VIRTUAL TABLE event_text USING fts5(session, text, content='', contentless_delete=1, tokenize='ascii');

-- The position up to which events are in `event_text`. Later ones are added in the background and before a search.
CREATE TABLE event_text_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  until INTEGER NOT NULL
) STRICT;

INSERT INTO event_text_state (id, until) VALUES (1, 0);

-- How long the sessions under a prefix are kept. Of several policies, that with the longest prefix of an id decides.
CREATE TABLE retention_policies (
  prefix TEXT NOT NULL PRIMARY KEY,
  max_age_s REAL,
  keep_latest INTEGER,
  updated_at TEXT NOT NULL
) STRICT;
