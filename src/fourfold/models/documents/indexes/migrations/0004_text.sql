-- Full-text indexes of a space. The words of an index are in a table of its own, `index_text_N`, N its number: FTS5 without
-- content, with one row for each version of a text. It exists from the declaration on.

-- The versions: an entity of a branch had these texts from `from_seq` on, and no longer at `to_seq`; NULL if it has them now.
-- `doc` is the rowid in the table of the index, `digest` a hash of the texts.
CREATE TABLE index_text (
    doc      INTEGER NOT NULL PRIMARY KEY,
    ix       INTEGER NOT NULL,
    branch   TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    from_seq INTEGER NOT NULL,
    to_seq   INTEGER,
    digest   BLOB    NOT NULL
);

CREATE INDEX index_text_entity ON index_text (ix, branch, id, from_seq);
