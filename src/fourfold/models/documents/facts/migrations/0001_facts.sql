-- A space whose history is a log of facts. A fact says what became of one entity, and names by its hash the fact that
-- it follows; so the hash of the newest fact of an entity vouches for the whole history of that entity.
--
-- Every hash of a value, a fact or a commit is a merkle reference in its text form, `ba4jc...`, in every column.
-- The form `baedre...` is for the wire and is never stored.
-- Columns that the specification declares JSON are TEXT here: JSON has numeric affinity, which rewrites scalars.

-- Every distinct JSON value once: whole documents, and lists of patches.
-- The merkle reference calls 1 and 1.0 the same value, so `data` is the first spelling of the value that was seen.
-- Another spelling is kept in a column `text` beside the reference.
CREATE TABLE value (
    hash TEXT NOT NULL PRIMARY KEY,
    data TEXT
);
-- What the facts of deleted entities point at. It is the only value without data, and is never removed.
INSERT INTO value (hash, data) VALUES ('__empty__', NULL);
CREATE TRIGGER value_empty_stays BEFORE DELETE ON value WHEN old.hash = '__empty__'
BEGIN
    SELECT raise(ABORT, 'the value of deleted entities is never removed');
END;

-- Every write-class command: a transaction, or the birth or end of a branch.
-- The hash covers seq, session and the commit before, so two equal requests are two commits.
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
-- The merges into a branch. They are few, and a search for the base of the next one must not read every request.
CREATE INDEX idx_commit_merge ON "commit" (branch, seq) WHERE instr(substr(original, 1, 300), ',"merge":{') > 0;

-- What can be said about an entity: this value, these patches, or its end, after that parent (NULL: after nothing).
-- Two branches that say the same thing after the same parent share the fact; `branch`, `seq` and `commit_ref` tell
-- where it was first said.
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

-- The log: every time that a fact was said, in the order of the commits and of the operations in them.
-- `fact_type` repeats the fact's, so that a search for the last whole document reads this table alone.
-- `text` is the spelling of the value where it is not the one that the value's row holds.
-- The specification's indexes on the facts' seqs, ids, branches and commits are here, as the key and the index of this
-- table: a shared fact has several of each.
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

-- Where reading starts: the newest fact of each entity on each branch. A deleted entity keeps its head.
CREATE TABLE head (
    branch    TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    fact_hash TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    op_index  INTEGER NOT NULL,
    PRIMARY KEY (branch, id),
    FOREIGN KEY (fact_hash) REFERENCES fact (hash)
) WITHOUT ROWID;

-- Whole documents at some seqs: derived, so that no read has to replay a long chain of patches.
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
INSERT INTO branch (name, created_at)
SELECT '', strftime('%Y-%m-%dT%H:%M:%fZ', value) FROM kernel_meta WHERE key = 'created_at';

-- As in a space of revisions: a blob need not say its type, and remembers when it came.
CREATE TABLE blob_store (
    hash         TEXT    NOT NULL PRIMARY KEY,
    data         BLOB    NOT NULL,
    content_type TEXT,
    size         INTEGER NOT NULL,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The log in the shape of a space of revisions: the readers ask both kinds of space the same questions.
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

-- The heads with what they say. For an entity that was last patched `value` is the list of patches, not the document.
-- The seq is the head's: a fact that another branch said before has an older one.
CREATE VIEW state AS
SELECT h.branch, h.id, r.op AS fact_type, h.seq, r.data AS value
FROM head AS h
JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index;
