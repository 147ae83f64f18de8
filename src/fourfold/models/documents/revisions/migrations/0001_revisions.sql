-- A space whose history is a log of revisions: every change of every entity, in the order of its commits.
-- Columns that the specification declares JSON are TEXT here: JSON has numeric affinity, which rewrites scalars.

-- Every write-class command: a transaction, or the birth or end of a branch.
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
-- The merges into a branch. They are few, and a search for the base of the next one must not read every request.
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

-- Whole documents at some seqs: derived, so that no read has to replay a long chain of patches.
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
-- The default branch exists from the start: without it no head_seq could be kept. It is as old as the file.
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
