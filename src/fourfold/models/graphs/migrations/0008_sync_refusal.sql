-- Refusals of sync, the keys that sign here, and parked rows by their author.

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

INSERT INTO sync_signer (author)
SELECT DISTINCT l.author FROM sync_log AS l JOIN sync_node AS n ON n.incarnation = l.incarnation;

-- The entry by which a peer claimed last that this node lost entries; it is believed again once the entry is here.
-- Not part of the archive.
CREATE TABLE sync_claim (
    peer_id INTEGER PRIMARY KEY,
    entry   BLOB NOT NULL
);

-- Rows of a domain that are not applied. `missing` is the row that they wait for, NULL if they can never be applied,
-- for `reason`.
ALTER TABLE sync_parked RENAME TO sync_parked_before;
DROP INDEX sync_parked_missing;
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
INSERT INTO sync_parked (row_id, domain, missing, reason)
SELECT row_id, domain, missing, reason FROM sync_parked_before;
DROP TABLE sync_parked_before;

-- Rows of packages of the earliest format have no content ids until `migrate_sync` makes them.
INSERT INTO settings (key, value)
SELECT 'sync_format', 'earlier'
WHERE EXISTS (SELECT 1 FROM sync_state) AND NOT EXISTS (SELECT 1 FROM sync_log);
