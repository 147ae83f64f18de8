-- Declared indexes of a space. The same tables for both kinds of history.

-- What was declared. `paths` is a JSON array of pointers, `options` a JSON object.
CREATE TABLE index_declaration (
    ix         INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    kind       TEXT    NOT NULL,
    paths      TEXT    NOT NULL,
    options    TEXT    NOT NULL,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- How far each index is built: every entity up to (branch, id) has its entries. A declaration without a row here is not
-- built at all, as after a restore. A row without a declaration belongs to a dropped index whose entries still exist.
CREATE TABLE index_build (
    ix     INTEGER NOT NULL PRIMARY KEY,
    state  TEXT    NOT NULL,
    branch TEXT    NOT NULL DEFAULT '',
    id     TEXT    NOT NULL DEFAULT '',
    error  TEXT
);

-- An entity of a branch has a value from `from_seq` on. Only rows that the branch itself wrote have entries: what it
-- inherits is found with the entries of its ancestors.
CREATE TABLE index_live (
    ix       INTEGER NOT NULL,
    branch   TEXT    NOT NULL,
    value    BLOB    NOT NULL,
    id       TEXT    NOT NULL,
    from_seq INTEGER NOT NULL,
    PRIMARY KEY (ix, branch, value, id)
) WITHOUT ROWID;

-- It had a value from `from_seq` on, and no longer at `to_seq`.
CREATE TABLE index_past (
    ix       INTEGER NOT NULL,
    branch   TEXT    NOT NULL,
    value    BLOB    NOT NULL,
    id       TEXT    NOT NULL,
    to_seq   INTEGER NOT NULL,
    from_seq INTEGER NOT NULL,
    PRIMARY KEY (ix, branch, value, id, to_seq)
) WITHOUT ROWID;
