-- The log of all streams, and what is known of each. Inside, a stream is a number (`sid`); names are for callers.

-- One row per stream. Offsets count records from 0. Segments are the archive's: until one is sealed, `sealed_through` and
-- `uploaded_through` are -1 and everything is pending.
CREATE TABLE streams (
    sid                    INTEGER PRIMARY KEY AUTOINCREMENT,
    stream                 TEXT NOT NULL UNIQUE,
    created_at_ms          INTEGER NOT NULL,
    updated_at_ms          INTEGER NOT NULL,
    next_offset            INTEGER NOT NULL DEFAULT 0,
    sealed_through         INTEGER NOT NULL DEFAULT -1,
    uploaded_through       INTEGER NOT NULL DEFAULT -1,
    uploaded_segment_count INTEGER NOT NULL DEFAULT 0,
    pending_rows           INTEGER NOT NULL DEFAULT 0,
    pending_bytes          INTEGER NOT NULL DEFAULT 0,
    last_segment_cut_ms    INTEGER NOT NULL,
    segment_in_progress    INTEGER NOT NULL DEFAULT 0 CHECK (segment_in_progress IN (0, 1)),
    content_type           TEXT NOT NULL,
    profile                TEXT NOT NULL DEFAULT 'generic',
    stream_seq             TEXT,
    closed                 INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
    closed_producer_id     TEXT,
    closed_producer_epoch  INTEGER,
    closed_producer_seq    INTEGER,
    ttl_seconds            INTEGER,
    -- When the stream ends: fixed, or moved on by every use where there is a time to live.
    expires_at_ms          INTEGER,
    -- Bit 1: deleted, but still read through by its forks.
    stream_flags           INTEGER NOT NULL DEFAULT 0,
    logical_size_bytes     INTEGER NOT NULL DEFAULT 0,
    wal_rows               INTEGER NOT NULL DEFAULT 0,
    wal_bytes              INTEGER NOT NULL DEFAULT 0,
    -- The oldest offset that can still be read; retention moves it on.
    first_offset           INTEGER NOT NULL DEFAULT 0,
    -- How long, and how many bytes of it, the stream keeps; NULL is all. It keeps everything while it has forks.
    retention_seconds      INTEGER,
    retention_bytes        INTEGER,
    -- A fork reads the offsets below `fork_offset` from the stream that it came from.
    forked_from            INTEGER REFERENCES streams (sid),
    fork_offset            INTEGER,
    -- What was asked for when it was forked: an offset, and how much further.
    fork_asked             INTEGER,
    fork_sub_offset        INTEGER,
    -- How many living streams were forked from this one.
    forks                  INTEGER NOT NULL DEFAULT 0,
    -- Tells a stream from an earlier one of the same name.
    incarnation            TEXT NOT NULL
);
-- Which streams are due to be sealed; only those that have something.
CREATE INDEX streams_pending_bytes_idx ON streams (segment_in_progress, pending_bytes) WHERE pending_bytes > 0;
CREATE INDEX streams_last_cut_idx ON streams (last_segment_cut_ms) WHERE pending_rows > 0;
CREATE INDEX streams_expiry_idx ON streams (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- The log itself. `wal` below shows it with names.
CREATE TABLE wal_log (
    id          INTEGER PRIMARY KEY,
    sid         INTEGER NOT NULL,
    offset      INTEGER NOT NULL,
    ts_ms       INTEGER NOT NULL,
    payload     BLOB NOT NULL,
    payload_len INTEGER NOT NULL,
    routing_key BLOB,
    flags       INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX wal_stream_offset_uniq ON wal_log (sid, offset);

CREATE VIEW wal AS
SELECT w.id, s.stream, w.offset, w.ts_ms, w.payload, w.payload_len, w.routing_key, s.content_type, w.flags
FROM wal_log AS w JOIN streams AS s ON s.sid = w.sid;

-- What each producer has written, by which a repeated request is known.
CREATE TABLE producer_state_log (
    sid           INTEGER NOT NULL REFERENCES streams (sid),
    producer_id   TEXT NOT NULL,
    epoch         INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (sid, producer_id)
) WITHOUT ROWID;

CREATE VIEW producer_state AS
SELECT s.stream, p.producer_id, p.epoch, p.last_seq, p.updated_at_ms
FROM producer_state_log AS p JOIN streams AS s ON s.sid = p.sid;

-- The version of this schema; the kernel keeps how it came about.
CREATE VIEW schema_version AS SELECT max(version) AS version FROM schema_migrations;
