-- A log and its counters, in the shape that serves many keys best: the log grows at its end, and only
-- a narrow index is touched in random places.

CREATE TABLE counter (
    key  INTEGER PRIMARY KEY,
    next INTEGER NOT NULL
);

CREATE TABLE entry (
    id       INTEGER PRIMARY KEY,
    key      INTEGER NOT NULL,
    ts       INTEGER NOT NULL,
    position INTEGER NOT NULL,
    payload  BLOB NOT NULL,
    size     INTEGER NOT NULL
);

CREATE UNIQUE INDEX entry_by_key ON entry (key, position);
