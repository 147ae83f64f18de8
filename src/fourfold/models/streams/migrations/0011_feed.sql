-- One feed over all streams. The ids of records in `wal_log` are its order, and are never used twice: `trimmed_id` is the highest
-- one that left the log. Entries of the trail up to `horizon` were dropped.
CREATE TABLE feed_state (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    trimmed_id INTEGER NOT NULL,
    horizon    INTEGER NOT NULL,
    trail_rows INTEGER NOT NULL
);
INSERT INTO feed_state (only, trimmed_id, horizon, trail_rows) VALUES (1, 0, 0, 0);

-- Where records that left the log were in that order: `records` of one stream with adjacent ids and offsets.
CREATE TABLE feed_trail (
    first_id     INTEGER PRIMARY KEY,
    sid          INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    records      INTEGER NOT NULL
);

-- A restored store continues with ids that later records had before: a cursor tells its history, and begins in a later one no
-- later than where that left it.
CREATE TABLE feed_histories (
    history INTEGER PRIMARY KEY,
    base_id INTEGER NOT NULL
);
