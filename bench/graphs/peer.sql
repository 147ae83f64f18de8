-- A change feed as it is commonly built by hand: tables, and triggers that copy every row into an audit table as JSON.

-- name: schema
CREATE TABLE parent (
    id INTEGER PRIMARY KEY, type_id INTEGER NOT NULL, owner INTEGER NOT NULL, created_at TEXT NOT NULL
);
CREATE TABLE attr (
    id INTEGER PRIMARY KEY, parent_id INTEGER NOT NULL, type_id INTEGER NOT NULL, owner INTEGER NOT NULL, value TEXT,
    created_at TEXT NOT NULL
);
CREATE TABLE edge (
    id INTEGER PRIMARY KEY, src INTEGER NOT NULL, dst INTEGER NOT NULL, type_id INTEGER NOT NULL, owner INTEGER NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX attr_parent ON attr (parent_id, type_id);
CREATE INDEX edge_src ON edge (src, type_id);
CREATE INDEX edge_dst ON edge (dst, type_id);
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, tbl TEXT NOT NULL, op TEXT NOT NULL, row_id INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE TRIGGER parent_added AFTER INSERT ON parent BEGIN
    INSERT INTO audit (at, tbl, op, row_id, data) VALUES (new.created_at, 'parent', 'insert', new.id,
        json_object('type_id', new.type_id, 'owner', new.owner, 'created_at', new.created_at));
END;
CREATE TRIGGER attr_added AFTER INSERT ON attr BEGIN
    INSERT INTO audit (at, tbl, op, row_id, data) VALUES (new.created_at, 'attr', 'insert', new.id,
        json_object('parent_id', new.parent_id, 'type_id', new.type_id, 'owner', new.owner, 'value', new.value,
            'created_at', new.created_at));
END;
CREATE TRIGGER edge_added AFTER INSERT ON edge BEGIN
    INSERT INTO audit (at, tbl, op, row_id, data) VALUES (new.created_at, 'edge', 'insert', new.id,
        json_object('src', new.src, 'dst', new.dst, 'type_id', new.type_id, 'owner', new.owner,
            'created_at', new.created_at));
END;

-- name: add_parent
INSERT INTO parent (type_id, owner, created_at) VALUES (?, ?, ?)

-- name: add_attr
INSERT INTO attr (parent_id, type_id, owner, value, created_at) VALUES (?, ?, ?, ?, ?)

-- name: add_edge
INSERT INTO edge (src, dst, type_id, owner, created_at) VALUES (?, ?, ?, ?, ?)

-- name: feed
SELECT seq, at, tbl, op, row_id, data FROM audit WHERE seq > ? ORDER BY seq LIMIT ?

-- name: counts
SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM attr) + (SELECT count(*) FROM edge), count(*) FROM audit

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: fold_back
PRAGMA wal_checkpoint(TRUNCATE)

-- name: wal
PRAGMA journal_mode = WAL

-- name: normal
PRAGMA synchronous = NORMAL

-- name: cache
PRAGMA cache_size = -16000
