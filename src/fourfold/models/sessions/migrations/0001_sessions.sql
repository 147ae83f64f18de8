-- The logs of all sessions: one database, an event a row. Everything but `sessions`, `events` and `payloads` is derived
-- from the events and can be rebuilt from them.

-- A session keeps its row for ever: the id of a deleted one is used up. `seal` is a digest of the other columns.
CREATE TABLE sessions (
    session_key INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    created_at  TEXT NOT NULL,
    deleted_at  TEXT,
    purged      INTEGER NOT NULL DEFAULT 0,
    seal        BLOB NOT NULL
);

-- The log. `position` orders the events of all sessions, `event_id` those of one. `entity` says what the event is about:
-- 1 a message, 2 a turn, 3 a step, 4 an eval. `body` is canonical JSON without what stands in the other columns.
-- `digest` covers this event and, through the digest before it, all earlier ones of its session; it is the same in every
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
-- Was this request appended before?
CREATE INDEX idx_events_request ON events (session_key, request_key) WHERE request_key IS NOT NULL;

-- Which event published which head.
CREATE TABLE heads (
    head_id     TEXT NOT NULL PRIMARY KEY,
    session_key INTEGER NOT NULL REFERENCES sessions (session_key),
    event_id    INTEGER NOT NULL,
    basis       TEXT
);
CREATE INDEX idx_heads_session ON heads (session_key, event_id);
CREATE INDEX idx_heads_basis ON heads (basis) WHERE basis IS NOT NULL;

-- Which event added which edge, and what the edge joins. Either end may lie in another store.
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

-- The folded state at some events, so that opening a session folds only what came after the newest of them.
CREATE TABLE snapshots (
    session_key INTEGER NOT NULL REFERENCES sessions (session_key),
    event_id    INTEGER NOT NULL,
    state       TEXT NOT NULL,
    PRIMARY KEY (session_key, event_id)
);

-- Large values under the SHA-256 of their canonical bytes. The bytes of the largest are files; `data` is NULL then.
-- `touched` is when the value was last stored, in seconds: unreferenced values have a grace period.
CREATE TABLE payloads (
    hash    BLOB NOT NULL PRIMARY KEY,
    size    INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    data    BLOB
);

-- The log as people and other programs like to read it.
CREATE VIEW session_events AS
SELECT s.session_id, e.event_id, e.position, e.type AS event_type, e.at AS event_at, e.entity_id, e.request_key, e.body
FROM events AS e JOIN sessions AS s USING (session_key)
WHERE s.deleted_at IS NULL;
