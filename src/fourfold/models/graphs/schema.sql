-- The whole current schema. A database gets it from the migrations; a test compares the two.
--
-- The tables that every graph database has. The tables of an app are created with it: see app.sql.

-- Cache of public keys, derived from the graph of app 0.
CREATE TABLE identities (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    pubkey     TEXT NOT NULL,
    label      TEXT,
    created_at TEXT NOT NULL
);
-- A key belongs to one identity.
CREATE UNIQUE INDEX identities_pubkey ON identities (pubkey);

-- Rows are never deleted, so the number of an app is never reused.
CREATE TABLE apps (
    app_id     INTEGER PRIMARY KEY,
    slug       TEXT UNIQUE NOT NULL,
    title      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at TEXT NOT NULL
);

-- Number of envelopes of a peer that this node has accepted, by domain: a hint, which only increases.
CREATE TABLE sync_state (
    peer_id  INTEGER,
    domain   TEXT,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (peer_id, domain)
);

-- Watermarks of this node.
CREATE TABLE domain_seq (
    domain   TEXT PRIMARY KEY,
    last_seq INTEGER NOT NULL
);

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE peers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    identity_id INTEGER NOT NULL,
    endpoint    TEXT NOT NULL,
    meta_json   TEXT NOT NULL,
    created_at  TEXT NOT NULL
);

-- The seq of the newest envelope. A database in which this row is wrong does not open.
CREATE TABLE global_seq (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL
);

-- The app, tables and flags of each accepted transaction. The change feed reads this table, so its cost does not
-- depend on the number of apps. `kinds` has a bit for each table: 1 parent, 2 attr, 4 edge, 8 rating. `sync_flags` are
-- the flags of all its rows.
CREATE TABLE envelopes (
    global_seq INTEGER NOT NULL,
    app_id     INTEGER NOT NULL,
    kinds      INTEGER NOT NULL,
    sync_flags INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    trace_id   TEXT,
    PRIMARY KEY (global_seq, app_id)
) WITHOUT ROWID;

-- Envelopes by the text that their writer gave them.
CREATE INDEX envelopes_trace ON envelopes (app_id, trace_id) WHERE trace_id IS NOT NULL;

-- Rows and bytes of an app, and their limits; NULL is unlimited.
CREATE TABLE app_usage (
    app_id    INTEGER PRIMARY KEY,
    rows      INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0,
    rows_max  INTEGER,
    bytes_max INTEGER
);

-- Migrations that were applied to the tables of an app.
CREATE TABLE app_migrations (
    app_id     INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (app_id, version)
);

-- Rows that a domain shares with peers: those with any bit of `mask`.
CREATE TABLE sync_domains (
    domain TEXT PRIMARY KEY,
    mask   INTEGER NOT NULL
);

-- Number of entries that a peer has confirmed to have, by domain.
CREATE TABLE sync_sent (
    peer_id  INTEGER NOT NULL,
    domain   TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (peer_id, domain)
);

-- Cached results. Any row may be dropped at any time.
CREATE TABLE derived_cache (
    owner             TEXT NOT NULL,
    cache_key         TEXT NOT NULL,
    value             TEXT NOT NULL,
    source_global_seq INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    PRIMARY KEY (owner, cache_key)
);

-- Requests that were sent with an idempotency key, and their results.
CREATE TABLE idempotency (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  result BLOB NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

-- Edges by their ends, derived from the tables of all apps: where each edge leads now, and where it led before.
-- `dst_kind` is 0 for a parent and 1 for an attribute.
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

-- Values of attributes and ratings, derived from the tables of all apps: the value of each now, and what it was before.
-- `kind` is 2 for an attribute and 8 for a rating; `target_kind` is 0 for a parent and 1 for an attribute. `value` is a
-- number, the beginning of a text, an empty blob for JSON, and x'00' for all others.
CREATE TABLE value_now (
    app_id      INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    target_kind INTEGER NOT NULL,
    target      INTEGER NOT NULL,
    type_id     INTEGER NOT NULL,
    object_id   INTEGER NOT NULL,
    value       ANY NOT NULL,
    from_seq    INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, target_kind, target, type_id, object_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX value_now_value ON value_now (app_id, kind, type_id, value, object_id, target_kind, target, from_seq);

-- It had the value from `from_seq` until before `to_seq`.
CREATE TABLE value_past (
    app_id      INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    target_kind INTEGER NOT NULL,
    target      INTEGER NOT NULL,
    type_id     INTEGER NOT NULL,
    object_id   INTEGER NOT NULL,
    value       ANY NOT NULL,
    from_seq    INTEGER NOT NULL,
    to_seq      INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, type_id, value, object_id, to_seq)
) STRICT, WITHOUT ROWID;

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

-- Rows of a domain that are not applied. `missing` is the row that they wait for, NULL if they can never be applied,
-- for `reason`.
CREATE TABLE sync_parked (
    row_id  BLOB NOT NULL,
    domain  TEXT NOT NULL,
    missing BLOB,
    reason  TEXT NOT NULL,
    author  BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (row_id, domain)
) WITHOUT ROWID;
CREATE INDEX sync_parked_missing ON sync_parked (missing);
CREATE INDEX sync_parked_author ON sync_parked (domain, author);

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

-- Entries of a domain whose ids begin with a byte: their number, and the sum of their ids modulo 2^256. Derived from
-- `sync_entry` up to an arrival, and not part of the archive.
CREATE TABLE sync_bucket (
    domain TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    total  BLOB NOT NULL,
    PRIMARY KEY (domain, bucket)
) WITHOUT ROWID;

-- The arrival up to which entries are in `sync_bucket`.
CREATE TABLE sync_summed (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    arrival INTEGER NOT NULL
);

-- Envelopes that were refused: the newest of each peer. Not part of the archive.
CREATE TABLE sync_refusal (
    id         INTEGER PRIMARY KEY,
    peer_id    INTEGER NOT NULL,
    entry      BLOB NOT NULL,
    kind       TEXT NOT NULL,
    message    TEXT NOT NULL,
    retryable  INTEGER NOT NULL,
    domain     TEXT,
    author     BLOB,
    seq        INTEGER,
    times      INTEGER NOT NULL,
    first_at   TEXT NOT NULL,
    refused_at TEXT NOT NULL,
    UNIQUE (peer_id, entry)
);

-- Keys that have signed on this node. Not part of the archive.
CREATE TABLE sync_signer (
    author BLOB PRIMARY KEY
) WITHOUT ROWID;

-- The entry by which a peer claimed last that this node lost entries; it is believed again once the entry is here.
-- Not part of the archive.
CREATE TABLE sync_claim (
    peer_id INTEGER PRIMARY KEY,
    entry   BLOB NOT NULL
);

-- What objects of a type must meet, as JSON.
CREATE TABLE type_rule (
    app_id  INTEGER NOT NULL,
    type_id INTEGER NOT NULL,
    rule    TEXT NOT NULL,
    PRIMARY KEY (app_id, type_id)
) WITHOUT ROWID;

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
