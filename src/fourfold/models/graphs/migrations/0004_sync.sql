-- Sync by signed envelopes: logs, entries, rows by content id, and what a peer may do.

-- The incarnation of this node, with the marks by which a copied or restored file is noticed. Not part of the archive.
CREATE TABLE sync_node (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    incarnation BLOB NOT NULL,
    file_mark   TEXT NOT NULL
);

-- What a peer may do in a domain. A domain that is not listed is closed to it.
CREATE TABLE sync_peer_domain (
    peer_id   INTEGER NOT NULL,
    domain    TEXT NOT NULL,
    may_read  INTEGER NOT NULL,
    may_write INTEGER NOT NULL,
    PRIMARY KEY (peer_id, domain)
) WITHOUT ROWID;

-- Apps whose rows a domain accepts. A domain without an entry accepts every app except the system app.
CREATE TABLE sync_domain_app (
    domain TEXT NOT NULL,
    app_id INTEGER NOT NULL,
    PRIMARY KEY (domain, app_id)
) WITHOUT ROWID;

-- Tips of the logs of a domain that a peer has confirmed, as JSON. A hint: it is replaced by each confirmation.
CREATE TABLE sync_peer_tip (
    peer_id INTEGER NOT NULL,
    domain  TEXT NOT NULL,
    tips    TEXT NOT NULL,
    PRIMARY KEY (peer_id, domain)
) WITHOUT ROWID;

-- A log: the envelopes of one author in one incarnation of its node and one domain.
CREATE TABLE sync_log (
    id          INTEGER PRIMARY KEY,
    author      BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    domain      TEXT NOT NULL,
    UNIQUE (author, incarnation, domain)
);
CREATE INDEX sync_log_domain ON sync_log (domain);

-- An envelope: its signed head as it arrived. `is_tip` is 1 if no other entry follows it.
CREATE TABLE sync_entry (
    arrival   INTEGER PRIMARY KEY,
    id        BLOB NOT NULL UNIQUE,
    log_id    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    prev      BLOB,
    head      BLOB NOT NULL,
    signature BLOB NOT NULL,
    is_tip    INTEGER NOT NULL
);
CREATE INDEX sync_entry_log ON sync_entry (log_id, seq);
CREATE INDEX sync_entry_tip ON sync_entry (log_id) WHERE is_tip = 1;

-- A row by its content id. `local_id` is its id in the table of its app, NULL while it is parked; `body` is what was
-- signed, NULL if the row is in no domain.
CREATE TABLE sync_row (
    id       INTEGER PRIMARY KEY,
    row_id   BLOB NOT NULL UNIQUE,
    app_id   INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    local_id INTEGER,
    body     BLOB
);
CREATE UNIQUE INDEX sync_row_local ON sync_row (app_id, kind, local_id) WHERE local_id IS NOT NULL;

-- Rows of a domain: those that an entry of one of its logs contains.
CREATE TABLE sync_member (
    id     INTEGER PRIMARY KEY,
    domain TEXT NOT NULL,
    row_id BLOB NOT NULL,
    UNIQUE (domain, row_id)
);

-- Two entries that follow the same one: proof that a log was written twice.
CREATE TABLE sync_fork (
    id         INTEGER PRIMARY KEY,
    log_id     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    first      BLOB NOT NULL,
    second     BLOB NOT NULL UNIQUE,
    noticed_at TEXT NOT NULL
);
CREATE INDEX sync_fork_log ON sync_fork (log_id, seq);

-- Rows that wait for a row that they refer to. `missing` is NULL if the row can never be applied, for `reason`.
CREATE TABLE sync_parked (
    row_id  BLOB PRIMARY KEY,
    domain  TEXT NOT NULL,
    missing BLOB,
    reason  TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sync_parked_missing ON sync_parked (missing);

-- Own rows that are shared in a domain and not signed yet, in the order of the log. Derived from the log.
CREATE TABLE sync_queue (
    domain     TEXT NOT NULL,
    owner      INTEGER NOT NULL,
    global_seq INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    app_id     INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    local_id   INTEGER NOT NULL,
    PRIMARY KEY (domain, owner, global_seq, position)
) WITHOUT ROWID;

-- Seq up to which the rows of a domain are in the queue.
CREATE TABLE sync_cursor (
    domain TEXT PRIMARY KEY,
    seq    INTEGER NOT NULL
);
