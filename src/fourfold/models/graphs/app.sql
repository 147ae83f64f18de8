-- The tables of one app; {n} is its number. Rows are only ever added.
--
-- After the columns of the specification every object row has: `object_id`, the id of the object's first row on this
-- node, by which other rows point at the object; `version`, 1 for the first row of an object and one more than the newest
-- known for each that follows; `origin`, the node that wrote the row, `origin_seq`, its number there, and `position`,
-- its place in that number. (origin, origin_seq, position) names the row on every node, and its first row the object.
-- `leads` is 1 when the row was the newest version of its object at the time it came here: of the rows up to any
-- number the last one that leads is the newest.

-- name: tables
CREATE TABLE IF NOT EXISTS app_{n}_type (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL CHECK (kind IN ('parent', 'attr', 'edge', 'rating')),
    type_key TEXT NOT NULL,
    UNIQUE (kind, type_key)
);

CREATE TABLE IF NOT EXISTS app_{n}_parent (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    type_id        INTEGER NOT NULL,
    owner_identity INTEGER NOT NULL,
    global_seq     INTEGER NOT NULL,
    sync_flags     INTEGER NOT NULL,
    created_at     TEXT NOT NULL,
    updated_at     TEXT NOT NULL,
    object_id      INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    origin         TEXT NOT NULL,
    origin_seq     INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    leads          INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS app_{n}_attr (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id      INTEGER NOT NULL,
    type_id        INTEGER NOT NULL,
    owner_identity INTEGER NOT NULL,
    global_seq     INTEGER NOT NULL,
    sync_flags     INTEGER NOT NULL,
    value_text     TEXT,
    value_number   REAL,
    value_blob     BLOB,
    value_json     TEXT,
    created_at     TEXT NOT NULL,
    object_id      INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    origin         TEXT NOT NULL,
    origin_seq     INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    leads          INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS app_{n}_edge (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    src_parent_id  INTEGER NOT NULL,
    dst_parent_id  INTEGER,
    dst_attr_id    INTEGER,
    type_id        INTEGER NOT NULL,
    owner_identity INTEGER NOT NULL,
    global_seq     INTEGER NOT NULL,
    sync_flags     INTEGER NOT NULL,
    created_at     TEXT NOT NULL,
    object_id      INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    origin         TEXT NOT NULL,
    origin_seq     INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    leads          INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS app_{n}_rating (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    target_parent_id INTEGER,
    target_attr_id   INTEGER,
    type_id          INTEGER NOT NULL,
    owner_identity   INTEGER NOT NULL,
    global_seq       INTEGER NOT NULL,
    sync_flags       INTEGER NOT NULL,
    value_text       TEXT,
    value_number     REAL,
    value_json       TEXT,
    created_at       TEXT NOT NULL,
    object_id        INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    origin           TEXT NOT NULL,
    origin_seq       INTEGER NOT NULL,
    position         INTEGER NOT NULL,
    leads            INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS app_{n}_log (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    level        TEXT NOT NULL,
    event_type   TEXT NOT NULL,
    context_json TEXT NOT NULL,
    created_at   TEXT NOT NULL
);

-- Indexes of the specification. Those of edges by their ends are `edge_now`, and rows by seq, by object and by target are
-- in tables that all apps share: an app has few schema objects, because every connection reads them all.
CREATE INDEX IF NOT EXISTS app_{n}_parent_type_owner ON app_{n}_parent (type_id, owner_identity);
CREATE INDEX IF NOT EXISTS app_{n}_parent_sync ON app_{n}_parent (sync_flags, global_seq);
CREATE INDEX IF NOT EXISTS app_{n}_attr_parent_type ON app_{n}_attr (parent_id, type_id);

-- Rows of a type. An index ends with the id, so each of them gives rows in the order of the log.
CREATE INDEX IF NOT EXISTS app_{n}_parent_type ON app_{n}_parent (type_id);
CREATE INDEX IF NOT EXISTS app_{n}_attr_type ON app_{n}_attr (type_id);
CREATE INDEX IF NOT EXISTS app_{n}_edge_type ON app_{n}_edge (type_id);
CREATE INDEX IF NOT EXISTS app_{n}_rating_type ON app_{n}_rating (type_id);

-- name: drop_earlier_indexes
-- Indexes that apps had before the shared tables.
DROP INDEX IF EXISTS app_{n}_edge_src_type;
DROP INDEX IF EXISTS app_{n}_edge_dst_type;
DROP INDEX IF EXISTS app_{n}_edge_dst_attr;
DROP INDEX IF EXISTS app_{n}_parent_owner;
DROP INDEX IF EXISTS app_{n}_rating_target_parent;
DROP INDEX IF EXISTS app_{n}_rating_target_attr;
DROP INDEX IF EXISTS app_{n}_parent_seq;
DROP INDEX IF EXISTS app_{n}_attr_seq;
DROP INDEX IF EXISTS app_{n}_edge_seq;
DROP INDEX IF EXISTS app_{n}_rating_seq;
DROP INDEX IF EXISTS app_{n}_parent_object;
DROP INDEX IF EXISTS app_{n}_attr_object;
DROP INDEX IF EXISTS app_{n}_edge_object;
DROP INDEX IF EXISTS app_{n}_rating_object;
DROP INDEX IF EXISTS app_{n}_parent_foreign;
DROP INDEX IF EXISTS app_{n}_attr_foreign;
DROP INDEX IF EXISTS app_{n}_edge_foreign;
DROP INDEX IF EXISTS app_{n}_rating_foreign;

-- name: types
SELECT id, kind, type_key FROM app_{n}_type ORDER BY id

-- name: type_by_key
SELECT id FROM app_{n}_type WHERE kind = ?1 AND type_key = ?2

-- name: type_ids
SELECT id FROM app_{n}_type WHERE kind = ?1

-- name: add_type
INSERT INTO app_{n}_type (kind, type_key) VALUES (?1, ?2)

-- name: parents_of_attrs
-- What some attributes belong to, which never changes.
SELECT a.id, a.parent_id FROM json_each(?1) AS wanted CROSS JOIN app_{n}_attr AS a WHERE a.id = wanted.value

-- name: add_log
INSERT INTO app_{n}_log (level, event_type, context_json, created_at) VALUES (?1, ?2, ?3, ?4)

-- name: last_log
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'app_{n}_log'), 0)

-- name: logs
SELECT id, level, event_type, context_json, created_at FROM app_{n}_log WHERE id > ?1 ORDER BY id LIMIT ?2
