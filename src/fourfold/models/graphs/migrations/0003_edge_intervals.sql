-- Edges by their ends, derived from the tables of all apps: where each edge leads now, and where it led before.
-- `dst_kind` is 0 for a parent and 1 for an attribute. The migration fills both from the rows that are there.
CREATE TABLE edge_now (
    app_id    INTEGER NOT NULL,
    src       INTEGER NOT NULL,
    type_id   INTEGER NOT NULL,
    dst_kind  INTEGER NOT NULL,
    dst       INTEGER NOT NULL,
    object_id INTEGER NOT NULL,
    from_seq  INTEGER NOT NULL,
    PRIMARY KEY (app_id, src, type_id, dst_kind, dst, object_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX edge_now_dst ON edge_now (app_id, dst_kind, dst, type_id, src, object_id, from_seq);

-- The edge led there from `from_seq` until before `to_seq`.
CREATE TABLE edge_past (
    app_id    INTEGER NOT NULL,
    src       INTEGER NOT NULL,
    type_id   INTEGER NOT NULL,
    dst_kind  INTEGER NOT NULL,
    dst       INTEGER NOT NULL,
    object_id INTEGER NOT NULL,
    from_seq  INTEGER NOT NULL,
    to_seq    INTEGER NOT NULL,
    PRIMARY KEY (app_id, src, to_seq, object_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX edge_past_dst ON edge_past (app_id, dst_kind, dst, to_seq);
