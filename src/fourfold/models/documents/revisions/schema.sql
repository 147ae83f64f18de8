-- The whole current schema. A database gets it from the migrations; a test compares the two.
--
-- A space whose history is a log of revisions: every change of every entity, in the order of commits.
-- Columns that the specification declares JSON are TEXT: JSON has numeric affinity, which rewrites scalars.

-- Every write: a transaction, or the creation or deletion of a branch.
CREATE TABLE "commit" (
    seq               INTEGER NOT NULL PRIMARY KEY,
    branch            TEXT    NOT NULL DEFAULT '',
    session_id        TEXT    NOT NULL,
    local_seq         INTEGER NOT NULL,
    invocation_ref    TEXT,
    authorization_ref TEXT,
    original          TEXT    NOT NULL,
    resolution        TEXT    NOT NULL,
    created_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    FOREIGN KEY (invocation_ref) REFERENCES invocation (ref),
    FOREIGN KEY (authorization_ref) REFERENCES authorization (ref)
);
CREATE INDEX idx_commit_branch ON "commit" (branch);
CREATE UNIQUE INDEX idx_commit_session_local_seq ON "commit" (session_id, local_seq);
CREATE INDEX idx_commit_invocation_ref ON "commit" (invocation_ref) WHERE invocation_ref IS NOT NULL;
-- The merges into a branch. They are few, and finding the base of the next one must not read every request.
CREATE INDEX idx_commit_merge ON "commit" (branch, seq) WHERE instr(substr(original, 1, 300), ',"merge":{') > 0;

-- The log: one row for each operation on each entity.
CREATE TABLE revision (
    branch     TEXT    NOT NULL DEFAULT '',
    id         TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    op_index   INTEGER NOT NULL,
    op         TEXT    NOT NULL,
    data       TEXT,
    commit_seq INTEGER NOT NULL,
    PRIMARY KEY (branch, id, seq, op_index),
    FOREIGN KEY (commit_seq) REFERENCES "commit" (seq)
) WITHOUT ROWID;
CREATE INDEX idx_revision_branch_seq ON revision (branch, seq);
CREATE INDEX idx_revision_commit ON revision (commit_seq);

-- Where reading starts: the newest revision of each entity on each branch.
CREATE TABLE head (
    branch   TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    op_index INTEGER NOT NULL,
    PRIMARY KEY (branch, id)
) WITHOUT ROWID;

-- Full documents at some seqs: derived, so that no read replays a long chain of patches.
CREATE TABLE snapshot (
    branch TEXT    NOT NULL DEFAULT '',
    id     TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    value  TEXT    NOT NULL,
    PRIMARY KEY (branch, id, seq)
) WITHOUT ROWID;

CREATE TABLE branch (
    name          TEXT    NOT NULL PRIMARY KEY,
    parent_branch TEXT,
    fork_seq      INTEGER,
    created_seq   INTEGER NOT NULL,
    head_seq      INTEGER NOT NULL,
    created_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    status        TEXT    NOT NULL DEFAULT 'active'
);
CREATE INDEX idx_branch_status ON branch (status);
CREATE INDEX idx_branch_parent ON branch (parent_branch);
-- The default branch always exists. It is as old as the file.
INSERT INTO branch (name, created_seq, head_seq, created_at)
SELECT '', 0, 0, strftime('%Y-%m-%dT%H:%M:%fZ', value) FROM kernel_meta WHERE key = 'created_at';

-- Reserved by the specification for signed writes.
CREATE TABLE invocation (
    ref        TEXT NOT NULL PRIMARY KEY,
    iss        TEXT NOT NULL,
    aud        TEXT,
    cmd        TEXT NOT NULL,
    sub        TEXT NOT NULL,
    invocation TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX idx_invocation_sub ON invocation (sub);
CREATE INDEX idx_invocation_cmd ON invocation (cmd);
CREATE INDEX idx_invocation_iss ON invocation (iss);

CREATE TABLE authorization (
    ref           TEXT NOT NULL PRIMARY KEY,
    authorization TEXT NOT NULL,
    created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TABLE blob_store (
    hash         TEXT    NOT NULL PRIMARY KEY,
    data         BLOB    NOT NULL,
    content_type TEXT,
    size         INTEGER NOT NULL,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE VIEW state AS
SELECT branch, id, seq, op_index FROM head;

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
