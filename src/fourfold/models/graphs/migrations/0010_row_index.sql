-- Indexes of the rows of all apps, so that an app itself has few schema objects. Derived from the tables of the apps; the
-- migration fills them and drops the indexes of the apps that they replace.

-- The first row of each seq in each table of an app. `kind` is a bit: 1 parent, 2 attr, 4 edge, 8 rating.
CREATE TABLE seq_row (
    app_id     INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    global_seq INTEGER NOT NULL,
    first_id   INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, global_seq)
) STRICT, WITHOUT ROWID;

-- Later versions of objects. The first row of an object has its id.
CREATE TABLE row_version (
    app_id    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    object_id INTEGER NOT NULL,
    leads     INTEGER NOT NULL,
    id        INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, object_id, leads, id)
) STRICT, WITHOUT ROWID;

-- Where versions of edges lead that were never visible: they did not lead, or one of the same seq replaced them. The other
-- ends are in `edge_now` and `edge_past`.
CREATE TABLE edge_unseen (
    app_id    INTEGER NOT NULL,
    dst_kind  INTEGER NOT NULL,
    dst       INTEGER NOT NULL,
    object_id INTEGER NOT NULL,
    PRIMARY KEY (app_id, dst_kind, dst, object_id)
) STRICT, WITHOUT ROWID;
