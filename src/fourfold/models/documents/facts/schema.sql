-- The whole current schema. A database gets it from the migrations; a test compares the two.
--
-- A space whose history is a log of facts. A fact is a change of one entity and contains the hash of its parent fact; so
-- the hash of the newest fact of an entity authenticates the whole history of that entity.
--
-- Every hash of a value, a fact or a commit is a merkle reference in its text form, `ba4jc...`, in every column.
-- The wire form `baedre...` is never stored.
-- Columns that the specification declares JSON are TEXT: JSON has numeric affinity, which rewrites scalars.

-- Every distinct JSON value once: full documents, and lists of patches. 1 and 1.0 have the same merkle reference; `data` is
-- the first spelling, and other spellings are in a column `text` next to the reference.
CREATE TABLE value (
    hash TEXT NOT NULL PRIMARY KEY,
    data TEXT
);
-- The value of deleted entities, the only one without data; it is never removed.
INSERT INTO value (hash, data) VALUES ('__empty__', NULL);
CREATE TRIGGER value_empty_stays BEFORE DELETE ON value WHEN old.hash = '__empty__'
BEGIN
    SELECT raise(ABORT, 'the value of deleted entities is never removed');
END;

-- Every write: a transaction, or the creation or deletion of a branch. The hash covers seq, session and the previous
-- commit, so two equal requests are two commits.
CREATE TABLE "commit" (
    hash       TEXT    NOT NULL PRIMARY KEY,
    seq        INTEGER NOT NULL,
    branch     TEXT    NOT NULL DEFAULT '',
    reads      TEXT,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    session_id TEXT    NOT NULL,
    local_seq  INTEGER NOT NULL,
    original   TEXT    NOT NULL,
    resolution TEXT    NOT NULL,
    previous   TEXT
);
CREATE UNIQUE INDEX idx_commit_seq ON "commit" (seq);
CREATE INDEX idx_commit_branch ON "commit" (branch);
CREATE UNIQUE INDEX idx_commit_session_local_seq ON "commit" (session_id, local_seq);
-- The merges into a branch. They are few, and finding the base of the next one must not read every request.
CREATE INDEX idx_commit_merge ON "commit" (branch, seq) WHERE instr(substr(original, 1, 300), ',"merge":{') > 0;

-- A change of an entity: a value, patches, or its deletion, after a parent (NULL for the first). Equal changes after the
-- same parent on two branches share a fact; `branch`, `seq` and `commit_ref` are those of the first.
CREATE TABLE fact (
    hash       TEXT    NOT NULL PRIMARY KEY,
    id         TEXT    NOT NULL,
    value_ref  TEXT    NOT NULL,
    parent     TEXT,
    branch     TEXT    NOT NULL DEFAULT '',
    seq        INTEGER NOT NULL,
    commit_ref TEXT    NOT NULL,
    fact_type  TEXT    NOT NULL,
    FOREIGN KEY (value_ref) REFERENCES value (hash),
    FOREIGN KEY (commit_ref) REFERENCES "commit" (hash)
) WITHOUT ROWID;

-- The log: every occurrence of a fact, in the order of commits and of the operations in them. `fact_type` repeats that of
-- the fact, so that a search for the last full document reads only this table. `text` is the spelling of the value if it
-- differs from `value.data`. The indexes that the specification has on facts are the key and the index of this table: a
-- shared fact has several seqs, branches and commits.
CREATE TABLE occurrence (
    branch    TEXT    NOT NULL DEFAULT '',
    id        TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    op_index  INTEGER NOT NULL,
    fact_hash TEXT    NOT NULL,
    fact_type TEXT    NOT NULL,
    text      TEXT,
    PRIMARY KEY (branch, id, seq, op_index),
    FOREIGN KEY (fact_hash) REFERENCES fact (hash)
) WITHOUT ROWID;
CREATE INDEX idx_occurrence_branch_seq ON occurrence (branch, seq, op_index);

-- Where reading starts: the newest fact of each entity on each branch. A deleted entity has a head, too.
CREATE TABLE head (
    branch    TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    fact_hash TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    op_index  INTEGER NOT NULL,
    PRIMARY KEY (branch, id),
    FOREIGN KEY (fact_hash) REFERENCES fact (hash)
) WITHOUT ROWID;

-- Full documents at some seqs: derived, so that no read replays a long chain of patches.
CREATE TABLE snapshot (
    id        TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    value_ref TEXT    NOT NULL,
    branch    TEXT    NOT NULL DEFAULT '',
    text      TEXT,
    PRIMARY KEY (branch, id, seq),
    FOREIGN KEY (value_ref) REFERENCES value (hash)
) WITHOUT ROWID;

CREATE TABLE branch (
    name          TEXT    NOT NULL PRIMARY KEY,
    parent_branch TEXT,
    fork_seq      INTEGER,
    head_seq      INTEGER NOT NULL DEFAULT 0,
    created_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    created_seq   INTEGER NOT NULL DEFAULT 0,
    status        TEXT    NOT NULL DEFAULT 'active',
    FOREIGN KEY (parent_branch) REFERENCES branch (name)
);
CREATE INDEX idx_branch_status ON branch (status);
CREATE INDEX idx_branch_parent ON branch (parent_branch);
-- The default branch always exists. It is as old as the file.
INSERT INTO branch (name, created_at)
SELECT '', strftime('%Y-%m-%dT%H:%M:%fZ', value) FROM kernel_meta WHERE key = 'created_at';

CREATE TABLE blob_store (
    hash         TEXT    NOT NULL PRIMARY KEY,
    data         BLOB    NOT NULL,
    content_type TEXT,
    size         INTEGER NOT NULL,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The log with the columns of a space of revisions, so that readers query both kinds of space alike.
CREATE VIEW revision AS
SELECT
    branch,
    id,
    seq,
    op_index,
    fact_type AS op,
    coalesce(
        text,
        (SELECT v.data FROM fact AS f JOIN value AS v ON v.hash = f.value_ref WHERE f.hash = fact_hash)
    ) AS data,
    seq AS commit_seq,
    fact_hash
FROM occurrence;

-- The heads with their values. For an entity that was last patched, `value` is the list of patches, not the document. The
-- seq is that of the head: a fact shared with another branch has an older one.
CREATE VIEW state AS
SELECT h.branch, h.id, r.op AS fact_type, h.seq, r.data AS value
FROM head AS h
JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index;

-- Garbage collection: the same tables for both kinds of history.

-- What may be removed, as JSON. Without a row nothing is removed.
CREATE TABLE gc_policy (
    one        INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    policy     TEXT    NOT NULL,
    updated_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The horizon: every state at or above this seq can be read. It only increases.
-- `requests_seq`: up to this seq, commits have digests instead of the texts of requests, where that is shorter.
-- `loose`: snapshots dropped since the last search for orphaned values.
-- `run`: an unfinished collection and its position, as JSON.
CREATE TABLE gc_horizon (
    one          INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    seq          INTEGER NOT NULL DEFAULT 0,
    requests_seq INTEGER NOT NULL DEFAULT 0,
    loose        INTEGER NOT NULL DEFAULT 0,
    run          TEXT
);
INSERT INTO gc_horizon (one, loose) VALUES (1, 0);

-- Points below the horizon that can still be read: forks, bases of merges, pinned seqs.
CREATE TABLE gc_point (
    branch TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (branch, seq)
) WITHOUT ROWID;

-- Commits from which rows were removed, with a digest of the remaining ones.
CREATE TABLE gc_seal (
    seq  INTEGER NOT NULL PRIMARY KEY,
    seal TEXT    NOT NULL
);

-- Snapshots with which the collected log begins; the rows from which they were derived are gone.
CREATE TABLE gc_base (
    branch TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    digest TEXT    NOT NULL,
    PRIMARY KEY (branch, id, seq)
) WITHOUT ROWID;

-- Rows of the log directly before which others were removed, with the newest removed seq.
CREATE TABLE gc_gap (
    branch   TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    op_index INTEGER NOT NULL,
    lost_seq INTEGER NOT NULL,
    PRIMARY KEY (branch, id, seq, op_index)
) WITHOUT ROWID;

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
