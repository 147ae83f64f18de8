-- What a space may give up of its past, and what it has given up. The same tables for both kinds of history.

-- What shall be given up, as JSON. Without the row nothing ever is.
CREATE TABLE gc_policy (
    one        INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    policy     TEXT    NOT NULL,
    updated_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The horizon: every state at or above this seq can be read. It only ever moves up.
-- `requests_seq`: up to this seq the commits have digests instead of the requests' texts, where that is shorter.
-- `loose`: snapshots that were dropped since orphaned values were last looked for.
-- `run`: a collection that has begun and is not finished, as JSON; where to go on.
CREATE TABLE gc_horizon (
    one          INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    seq          INTEGER NOT NULL DEFAULT 0,
    requests_seq INTEGER NOT NULL DEFAULT 0,
    loose        INTEGER NOT NULL DEFAULT 0,
    run          TEXT
);
-- A space that is older than this table may have dropped snapshots before.
INSERT INTO gc_horizon (one, loose) SELECT 1, count(*) > 0 FROM "commit";

-- The points below the horizon that can be read all the same: forks, bases of merges, pinned seqs.
CREATE TABLE gc_point (
    branch TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (branch, seq)
) WITHOUT ROWID;

-- The commits from which something was taken, each with a digest of what is left of it.
CREATE TABLE gc_seal (
    seq  INTEGER NOT NULL PRIMARY KEY,
    seal TEXT    NOT NULL
);

-- The snapshots that are not derived any more, since what they were derived from is gone: with them the log begins.
CREATE TABLE gc_base (
    branch TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    digest TEXT    NOT NULL,
    PRIMARY KEY (branch, id, seq)
) WITHOUT ROWID;

-- The rows of the log directly before which something was taken, with the newest seq that was taken there.
CREATE TABLE gc_gap (
    branch   TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    op_index INTEGER NOT NULL,
    lost_seq INTEGER NOT NULL,
    PRIMARY KEY (branch, id, seq, op_index)
) WITHOUT ROWID;
