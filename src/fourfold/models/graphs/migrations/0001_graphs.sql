-- The tables that every graph database has. The tables of an app come with the app: see app.sql.

-- A cache of public keys; the authority is the graph of app 0, from which it can be rebuilt.
CREATE TABLE identities (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    pubkey     TEXT NOT NULL,
    label      TEXT,
    created_at TEXT NOT NULL
);
-- A key belongs to one identity.
CREATE UNIQUE INDEX identities_pubkey ON identities (pubkey);

-- Rows are never deleted, so the number of an app is never given to another.
CREATE TABLE apps (
    app_id     INTEGER PRIMARY KEY,
    slug       TEXT UNIQUE NOT NULL,
    title      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at TEXT NOT NULL
);

-- How far this node has taken in what a peer wrote, by domain. It only goes up.
CREATE TABLE sync_state (
    peer_id  INTEGER,
    domain   TEXT,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (peer_id, domain)
);

-- Watermarks that this node keeps for itself.
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

-- The number of the newest envelope. A database in which this row is wrong does not open.
CREATE TABLE global_seq (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL
);

-- What was written under each number: in which app, in which of its tables, under which flags. The change feed walks
-- this table, so its cost does not depend on how many apps there are. `kinds` has a bit for each table: 1 parent,
-- 2 attr, 4 edge, 8 rating. `sync_flags` are the flags of all rows together.
CREATE TABLE envelopes (
    global_seq INTEGER NOT NULL,
    app_id     INTEGER NOT NULL,
    kinds      INTEGER NOT NULL,
    sync_flags INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    trace_id   TEXT,
    PRIMARY KEY (global_seq, app_id)
) WITHOUT ROWID;

-- What an app may hold, and what it holds. A limit that is NULL is none.
CREATE TABLE app_usage (
    app_id    INTEGER PRIMARY KEY,
    rows      INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0,
    rows_max  INTEGER,
    bytes_max INTEGER
);

-- The steps that brought the tables of an app to its version.
CREATE TABLE app_migrations (
    app_id     INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (app_id, version)
);

-- What a domain offers to peers: rows that have one of the bits of `mask`.
CREATE TABLE sync_domains (
    domain TEXT PRIMARY KEY,
    mask   INTEGER NOT NULL
);

-- How far a peer has confirmed what this node wrote, by domain.
CREATE TABLE sync_sent (
    peer_id  INTEGER NOT NULL,
    domain   TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (peer_id, domain)
);

-- Results that apps cache to save work. Any of them may be dropped at any time.
CREATE TABLE derived_cache (
    owner             TEXT NOT NULL,
    cache_key         TEXT NOT NULL,
    value             TEXT NOT NULL,
    source_global_seq INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    PRIMARY KEY (owner, cache_key)
);
