-- The whole current schema. A database gets it from the migrations; a test compares the two.

-- One row per stream. Offsets count records from 0. Until a segment is sealed, `sealed_through` and `uploaded_through` are
-- -1 and all records are pending.
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
    -- When the stream expires: fixed, or moved by every use if it has a TTL.
    expires_at_ms          INTEGER,
    -- Bit 1: deleted, but still read by its forks. Bit 2: a record has or had headers.
    stream_flags           INTEGER NOT NULL DEFAULT 0,
    logical_size_bytes     INTEGER NOT NULL DEFAULT 0,
    wal_rows               INTEGER NOT NULL DEFAULT 0,
    wal_bytes              INTEGER NOT NULL DEFAULT 0,
    -- The oldest offset that can be read; retention increases it.
    first_offset           INTEGER NOT NULL DEFAULT 0,
    -- Retention by age and by size; NULL retains all. A stream with forks retains everything.
    retention_seconds      INTEGER,
    retention_bytes        INTEGER,
    -- A fork reads the offsets below `fork_offset` from its source.
    forked_from            INTEGER REFERENCES streams (sid),
    fork_offset            INTEGER,
    -- The requested offset of the fork, and the requested distance from it.
    fork_asked             INTEGER,
    fork_sub_offset        INTEGER,
    -- Number of existing forks of this stream.
    forks                  INTEGER NOT NULL DEFAULT 0,
    -- Distinguishes a stream from an earlier one of the same name.
    incarnation            TEXT NOT NULL,
    -- 1 if a subscription has a cursor in the stream.
    followed               INTEGER NOT NULL DEFAULT 0 CHECK (followed IN (0, 1)),
    -- Coarse amount of pending records, so that few appends change an index.
    pending_level          INTEGER NOT NULL DEFAULT 0,
    schema_version         INTEGER,
    -- First half of the offsets on the wire.
    incarnation_number     INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX streams_expiry_idx ON streams (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
-- An append marks the cursors before it, in its own transaction: no wake can be lost.
CREATE TRIGGER subscription_append AFTER UPDATE OF next_offset ON streams WHEN new.followed = 1
BEGIN
    UPDATE subscription_links SET pending = 1 WHERE stream = new.stream AND pending = 0 AND acked < new.next_offset;
END;
CREATE TRIGGER subscription_arrival AFTER INSERT ON streams WHEN EXISTS (SELECT 1 FROM subscriptions)
BEGIN
    INSERT INTO subscription_arrivals (sid) VALUES (new.sid);
    UPDATE streams SET followed = 1
    WHERE sid = new.sid AND EXISTS (SELECT 1 FROM subscription_links WHERE stream = new.stream);
END;
-- A deleted stream loses its cursors; an explicit one starts again with the next stream of that name.
CREATE TRIGGER subscription_departure AFTER DELETE ON streams WHEN EXISTS (SELECT 1 FROM subscriptions)
BEGIN
    DELETE FROM subscription_links WHERE stream = old.stream AND explicit = 0;
    UPDATE subscription_links SET acked = 0, pending = 0, told = NULL, globbed = 0 WHERE stream = old.stream;
    DELETE FROM subscription_arrivals WHERE sid = old.sid;
END;
CREATE TRIGGER subscription_end AFTER UPDATE OF stream_flags ON streams
WHEN (new.stream_flags & 1) = 1 AND (old.stream_flags & 1) = 0
BEGIN
    DELETE FROM subscription_links WHERE stream = old.stream AND explicit = 0;
    UPDATE subscription_links SET acked = 0, pending = 0, told = NULL, globbed = 0 WHERE stream = old.stream;
END;
-- The manifest of the stream is due. An append changes none of these columns.
CREATE TRIGGER archive_changed AFTER UPDATE OF closed, stream_flags, first_offset ON streams
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;
CREATE TRIGGER archive_removed AFTER DELETE ON streams
BEGIN
    INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes)
    SELECT 'streams/' || replace(segment_id, '/', '/segments/') || '.parquet', stream, size_bytes
    FROM segments WHERE stream = old.stream
    UNION ALL
    SELECT 'streams/' || replace(segment_id, '/', '/segments/') || '.parquet', stream, size_bytes
    FROM segment_swaps WHERE stream = old.stream
    UNION ALL
    SELECT object_key, stream, size_bytes FROM key_runs WHERE stream = old.stream
    UNION ALL
    SELECT object_key, stream, size_bytes FROM search_segment_companions WHERE stream = old.stream;
    DELETE FROM segments WHERE stream = old.stream;
    DELETE FROM stream_segment_meta WHERE stream = old.stream;
    DELETE FROM segment_swaps WHERE stream = old.stream;
    DELETE FROM key_indexes WHERE stream = old.stream;
    DELETE FROM key_runs WHERE stream = old.stream;
    DELETE FROM search_companion_plans WHERE stream = old.stream;
    DELETE FROM search_segment_companions WHERE stream = old.stream;
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = old.stream;
END;
CREATE INDEX streams_pending_bytes_idx ON streams (segment_in_progress, pending_level) WHERE pending_level > 0;
CREATE INDEX streams_last_cut_idx ON streams (last_segment_cut_ms) WHERE pending_level > 0;
-- The level follows the counters.
CREATE TRIGGER pending_level_of_new AFTER INSERT ON streams WHEN new.pending_rows > 0
BEGIN
    UPDATE streams SET pending_rows = pending_rows WHERE sid = new.sid;
END;
CREATE TRIGGER pending_level_moves AFTER UPDATE OF pending_rows, pending_bytes ON streams
WHEN new.pending_level <> (new.pending_rows > 0) * (1 + max(
    (new.pending_bytes >= 256) + (new.pending_bytes >= 1024) + (new.pending_bytes >= 4096) + (new.pending_bytes >= 16384)
        + new.pending_bytes / 65536,
    (new.pending_rows >= 16) + (new.pending_rows >= 128) + new.pending_rows / 1024
))
BEGIN
    UPDATE streams SET pending_level = (new.pending_rows > 0) * (1 + max(
        (new.pending_bytes >= 256) + (new.pending_bytes >= 1024) + (new.pending_bytes >= 4096) + (new.pending_bytes >= 16384)
            + new.pending_bytes / 65536,
        (new.pending_rows >= 16) + (new.pending_rows >= 128) + new.pending_rows / 1024
    )) WHERE sid = new.sid;
END;
CREATE TRIGGER rules_removed AFTER DELETE ON streams
BEGIN
    DELETE FROM schemas WHERE stream = old.stream;
    DELETE FROM stream_profiles WHERE stream = old.stream;
    DELETE FROM stream_touch_state WHERE stream = old.stream;
    DELETE FROM live_templates WHERE stream = old.stream;
END;
CREATE TRIGGER profile_changed AFTER UPDATE OF profile ON streams
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;
-- Streams with retention, for the sweeper: most have none.
CREATE INDEX streams_retention_idx ON streams (stream) WHERE retention_seconds IS NOT NULL OR retention_bytes IS NOT NULL;
CREATE TRIGGER incarnation_ended AFTER DELETE ON streams
BEGIN
    INSERT INTO stream_names (stream, incarnation_number) VALUES (old.stream, old.incarnation_number)
    ON CONFLICT (stream) DO UPDATE SET incarnation_number = max(incarnation_number, excluded.incarnation_number);
END;
CREATE TRIGGER stream_keys_ended AFTER DELETE ON streams
BEGIN
    DELETE FROM stream_key_gaps WHERE sid = old.sid;
END;

-- The log. The view `wal` has the names of the streams.
CREATE TABLE wal_log (
    id          INTEGER PRIMARY KEY,
    sid         INTEGER NOT NULL,
    offset      INTEGER NOT NULL,
    ts_ms       INTEGER NOT NULL,
    payload     BLOB NOT NULL,
    payload_len INTEGER NOT NULL,
    routing_key BLOB,
    flags       INTEGER NOT NULL DEFAULT 0,
    -- Headers of the record, as JSON; NULL without any.
    headers     BLOB
);
-- Records of one routing key that are still in the log.
CREATE INDEX wal_stream_key_idx ON wal_log (sid, routing_key, offset) WHERE routing_key IS NOT NULL;

CREATE TABLE subscriptions (
    sub             INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL CHECK (kind IN ('webhook', 'pull-wake')),
    pattern         TEXT,
    webhook_url     TEXT,
    wake_stream     TEXT,
    lease_ttl_ms    INTEGER NOT NULL,
    description     TEXT,
    -- Identifies a repeated request.
    config_hash     TEXT NOT NULL,
    -- The address of the server in the request that created it; responses to webhooks are sent there.
    address         TEXT NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    -- Number of the last wake. It only increases, also across deleted subscriptions.
    generation      INTEGER NOT NULL DEFAULT 0,
    -- The wake in progress; NULL while the subscription is idle.
    wake_id         TEXT,
    holder          TEXT,
    lease_until_ms  INTEGER,
    -- When to deliver the wake, or retry; NULL once it is delivered.
    next_attempt_ms INTEGER,
    failures        INTEGER NOT NULL DEFAULT 0,
    -- The key that created it, and the prefix of that key.
    owner_key       TEXT,
    owner_prefix    TEXT
);
CREATE INDEX subscriptions_idle_idx ON subscriptions (sub) WHERE wake_id IS NULL;
CREATE INDEX subscriptions_lease_idx ON subscriptions (lease_until_ms) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX subscriptions_attempt_idx ON subscriptions (next_attempt_ms) WHERE next_attempt_ms IS NOT NULL;

-- One cursor per stream of a subscription. An explicit stream may be created later.
CREATE TABLE subscription_links (
    sub      INTEGER NOT NULL REFERENCES subscriptions (sub),
    stream   TEXT NOT NULL,
    explicit INTEGER NOT NULL CHECK (explicit IN (0, 1)),
    globbed  INTEGER NOT NULL CHECK (globbed IN (0, 1)),
    acked    INTEGER NOT NULL,
    -- 1 if the stream has records after `acked`.
    pending  INTEGER NOT NULL DEFAULT 0 CHECK (pending IN (0, 1)),
    -- The end of the stream when the current wake was issued.
    told     INTEGER,
    PRIMARY KEY (sub, stream)
) WITHOUT ROWID;
CREATE INDEX subscription_links_stream_idx ON subscription_links (stream, pending);
CREATE INDEX subscription_links_pending_idx ON subscription_links (sub, stream) WHERE pending = 1;
CREATE INDEX subscription_links_told_idx ON subscription_links (sub) WHERE told IS NOT NULL;
CREATE TRIGGER subscription_link AFTER INSERT ON subscription_links
BEGIN
    UPDATE streams SET followed = 1 WHERE stream = new.stream AND followed = 0;
END;
CREATE TRIGGER subscription_unlink AFTER DELETE ON subscription_links
BEGIN
    UPDATE streams SET followed = 0
    WHERE stream = old.stream AND NOT EXISTS (SELECT 1 FROM subscription_links WHERE stream = old.stream);
END;

-- Number of the last wake of all subscriptions.
CREATE TABLE subscription_generation (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    generation INTEGER NOT NULL
);
INSERT INTO subscription_generation (only, generation) VALUES (1, 0);

-- New streams that were not matched with patterns yet.
CREATE TABLE subscription_arrivals (sid INTEGER PRIMARY KEY);

-- One row per segment of a stream. Offsets are those of its first and last record. While `uploaded_at_ms` is NULL its
-- records are in `wal_log`, too; afterwards they are not.
CREATE TABLE segments (
    segment_id     TEXT PRIMARY KEY,
    stream         TEXT NOT NULL,
    segment_index  INTEGER NOT NULL,
    start_offset   INTEGER NOT NULL,
    end_offset     INTEGER NOT NULL,
    size_bytes     INTEGER NOT NULL,
    payload_bytes  INTEGER NOT NULL,
    block_count    INTEGER NOT NULL,
    last_append_ms INTEGER NOT NULL,
    digest         TEXT NOT NULL,
    -- Path in the folder of local segments; the file is there until it is published.
    local_path     TEXT NOT NULL,
    created_at_ms  INTEGER NOT NULL,
    uploaded_at_ms INTEGER,
    r2_etag        TEXT,
    labeled        INTEGER NOT NULL DEFAULT 0 -- 1 if its rows name the stream and its incarnation
) WITHOUT ROWID;
CREATE UNIQUE INDEX segments_stream_start_idx ON segments (stream, start_offset);
CREATE INDEX segments_pending_upload_idx ON segments (stream, start_offset) WHERE uploaded_at_ms IS NULL;

-- The columns of the segments as growing arrays, from which a manifest is built: little-endian integers, 8 bytes each
-- unless noted otherwise. Segments that retention removed stay in them.
CREATE TABLE stream_segment_meta (
    stream           TEXT PRIMARY KEY,
    segment_count    INTEGER NOT NULL,
    segment_offsets  BLOB NOT NULL, -- the end offset of each, plus one
    segment_blocks   BLOB NOT NULL, -- row groups, 4 bytes each
    segment_last_ts  BLOB NOT NULL, -- time of the last record, in nanoseconds since 1970
    segment_starts   BLOB NOT NULL,
    segment_sizes    BLOB NOT NULL,
    segment_payloads BLOB NOT NULL,
    segment_digests  BLOB NOT NULL  -- SHA-256, 32 bytes each
) WITHOUT ROWID;

-- The manifest of each stream that is or was published. It stays after its stream is deleted, so that the next stream of
-- that name continues its generations. A manifest is due while `generation` is ahead.
CREATE TABLE manifests (
    stream                   TEXT PRIMARY KEY,
    generation               INTEGER NOT NULL,
    uploaded_generation      INTEGER NOT NULL,
    last_uploaded_at_ms      INTEGER,
    last_uploaded_etag       TEXT,
    last_uploaded_size_bytes INTEGER,
    -- Identifies the manifest being uploaded if no response arrives.
    token                    TEXT,
    -- The incarnation that the published manifest describes; NULL for none.
    told_incarnation         TEXT,
    CHECK (0 <= uploaded_generation AND uploaded_generation <= generation)
) WITHOUT ROWID;
CREATE INDEX manifests_due_idx ON manifests (stream) WHERE generation > uploaded_generation;

-- Objects that no later manifest refers to. They are deleted after a grace period.
CREATE TABLE retired_objects (
    object_key    TEXT PRIMARY KEY,
    stream        TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    -- NULL until the manifest without it is uploaded.
    retired_at_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX retired_objects_due_idx ON retired_objects (retired_at_ms) WHERE retired_at_ms IS NOT NULL;
CREATE INDEX retired_objects_stream_idx ON retired_objects (stream) WHERE retired_at_ms IS NULL;

-- Requests to the object store, counted on this node.
CREATE TABLE objectstore_request_counts (
    stream_hash   TEXT NOT NULL,
    artifact      TEXT NOT NULL,
    op            TEXT NOT NULL,
    count         INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (stream_hash, artifact, op)
) WITHOUT ROWID;
CREATE INDEX objectstore_request_counts_stream_idx ON objectstore_request_counts (stream_hash, updated_at_ms);

-- The name under which this node publishes, and the last stream that its search for new ones covered.
CREATE TABLE archive_state (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    publisher   TEXT NOT NULL,
    noticed_sid INTEGER NOT NULL
);

-- One row per index of a stream: '' is that of the routing key, another name that of a field of JSON messages. Runs refer
-- to offsets, so they stay valid when segments are compacted. `indexed_offset` is the first offset that no run covers;
-- `indexed_through` the number of segments, from the very first, that are wholly below it.
CREATE TABLE key_indexes (
    stream          TEXT NOT NULL,
    index_name      TEXT NOT NULL,
    index_secret    BLOB NOT NULL CHECK (length(index_secret) = 16),
    indexed_through INTEGER NOT NULL,
    indexed_offset  INTEGER NOT NULL,
    updated_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (stream, index_name)
) WITHOUT ROWID;

-- One row per run: a sorted file of keys and their offsets. Both ends of both ranges are included. A run that was merged
-- into a larger one, or whose records retention removed, has `retired_at_ms`, and `retired_gen` once a manifest without it
-- is published. The row is deleted with its object.
CREATE TABLE key_runs (
    run_id        TEXT PRIMARY KEY,
    stream        TEXT NOT NULL,
    index_name    TEXT NOT NULL,
    level         INTEGER NOT NULL,
    start_segment INTEGER NOT NULL,
    end_segment   INTEGER NOT NULL,
    start_offset  INTEGER NOT NULL,
    end_offset    INTEGER NOT NULL,
    object_key    TEXT NOT NULL UNIQUE,
    size_bytes    INTEGER NOT NULL,
    filter_len    INTEGER NOT NULL,
    record_count  INTEGER NOT NULL,
    digest        TEXT NOT NULL,
    retired_gen   INTEGER,
    retired_at_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX index_runs_stream_idx ON key_runs (stream, index_name, level, start_segment);

-- Companions that a stream requires for its segments, and below the published ones.
CREATE TABLE search_companion_plans (
    stream        TEXT PRIMARY KEY,
    generation    INTEGER NOT NULL,
    plan_hash     TEXT NOT NULL,
    plan_json     TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE search_segment_companions (
    stream                   TEXT NOT NULL,
    segment_index            INTEGER NOT NULL,
    object_key               TEXT NOT NULL,
    plan_generation          INTEGER NOT NULL,
    sections_json            TEXT NOT NULL,
    section_sizes_json       TEXT NOT NULL,
    size_bytes               INTEGER NOT NULL,
    primary_timestamp_min_ms INTEGER,
    primary_timestamp_max_ms INTEGER,
    updated_at_ms            INTEGER NOT NULL,
    PRIMARY KEY (stream, segment_index)
) WITHOUT ROWID;
CREATE INDEX search_segment_companions_stream_plan_idx
ON search_segment_companions (stream, plan_generation, segment_index);

-- Uploaded compacted segments, which replace their sources with the next manifest.
CREATE TABLE segment_swaps (
    segment_id     TEXT PRIMARY KEY,
    stream         TEXT NOT NULL,
    start_offset   INTEGER NOT NULL,
    end_offset     INTEGER NOT NULL,
    size_bytes     INTEGER NOT NULL,
    payload_bytes  INTEGER NOT NULL,
    block_count    INTEGER NOT NULL,
    last_append_ms INTEGER NOT NULL,
    digest         TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX segment_swaps_stream_idx ON segment_swaps (stream, start_offset);

-- Objects being uploaded, to which nothing refers yet. Those of a crashed process are retired.
CREATE TABLE pending_objects (
    object_key TEXT PRIMARY KEY,
    stream     TEXT NOT NULL,
    size_bytes INTEGER NOT NULL
) WITHOUT ROWID;

-- Each record of `wal_log` is in one of these two indexes; recent ones are in the small one.
CREATE TABLE wal_index (
    sid    INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (sid, offset)
) WITHOUT ROWID;

CREATE TABLE wal_recent (
    sid    INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (sid, offset)
) WITHOUT ROWID;

-- The schema registry of a stream: versions, the first offset of each, the lenses between them, and the path of the routing
-- key in its messages. `uploaded_size_bytes` is the size of the part in the published manifest.
CREATE TABLE schemas (
    stream              TEXT PRIMARY KEY,
    schema_json         TEXT NOT NULL,
    updated_at_ms       INTEGER NOT NULL,
    uploaded_size_bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- A manifest contains both schemas and profile.
CREATE TRIGGER schema_changed AFTER UPDATE OF schema_json ON schemas
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;
CREATE TRIGGER schema_added AFTER INSERT ON schemas
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;
CREATE TRIGGER schema_dropped AFTER DELETE ON schemas
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = old.stream;
END;

-- The profile of a stream that has one. Its kind is in `streams.profile`, too.
CREATE TABLE stream_profiles (
    stream        TEXT PRIMARY KEY,
    profile_json  TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Position up to which the changes of a stream were processed for waiters. It can be rebuilt from the stream.
CREATE TABLE stream_touch_state (
    stream            TEXT PRIMARY KEY,
    processed_through INTEGER NOT NULL,
    updated_at_ms     INTEGER NOT NULL
) WITHOUT ROWID;

-- Query templates on an entity, by the fields that they compare; waiters supply the values.
CREATE TABLE live_templates (
    stream                    TEXT NOT NULL,
    template_id               TEXT NOT NULL,
    entity                    TEXT NOT NULL,
    fields_json               TEXT NOT NULL,
    encodings_json            TEXT NOT NULL,
    state                     TEXT NOT NULL CHECK (state IN ('active', 'retired')),
    created_at_ms             INTEGER NOT NULL,
    last_seen_at_ms           INTEGER NOT NULL,
    inactivity_ttl_ms         INTEGER NOT NULL,
    active_from_source_offset INTEGER NOT NULL,
    retired_at_ms             INTEGER,
    retired_reason            TEXT,
    PRIMARY KEY (stream, template_id)
) WITHOUT ROWID;
-- Finds templates that were not used recently.
CREATE INDEX live_templates_seen_idx ON live_templates (state, last_seen_at_ms);

-- Deleted streams whose records are being trimmed. The row in `streams` and everything found by name is gone; the rest is
-- found by its `sid`, which is never reused.
CREATE TABLE deleted_streams (
    sid           INTEGER PRIMARY KEY,
    stream        TEXT NOT NULL,
    deleted_at_ms INTEGER NOT NULL
);

CREATE TABLE producer_state_log (
    sid           INTEGER NOT NULL,
    producer_id   TEXT NOT NULL,
    epoch         INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (sid, producer_id)
) WITHOUT ROWID;

-- The last incarnation number of each deleted name. The row '' is for all names: numbers up to it may have been used by a
-- history that this file lacks, such as the part after a restored backup.
CREATE TABLE stream_names (
    stream             TEXT PRIMARY KEY,
    incarnation_number INTEGER NOT NULL
) WITHOUT ROWID;

-- One feed over all streams. The ids of records in `wal_log` are its order, and are never used twice: `trimmed_id` is the highest
-- one that left the log. Entries of the trail up to `horizon` were dropped.
CREATE TABLE feed_state (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    trimmed_id INTEGER NOT NULL,
    horizon    INTEGER NOT NULL,
    trail_rows INTEGER NOT NULL
);
INSERT INTO feed_state (only, trimmed_id, horizon, trail_rows) VALUES (1, 0, 0, 0);

-- Where records that left the log were in that order: `records` of one stream with adjacent ids and offsets.
CREATE TABLE feed_trail (
    first_id     INTEGER PRIMARY KEY,
    sid          INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    records      INTEGER NOT NULL
);

-- A restored store continues with ids that later records had before: a cursor tells its history, and begins in a later one no
-- later than where that left it.
CREATE TABLE feed_histories (
    history INTEGER PRIMARY KEY,
    base_id INTEGER NOT NULL
);

-- Routing keys of records that have left the log, and the newest offset of each. Keys of records in the log are in its index.
CREATE TABLE stream_keys (
    sid         INTEGER NOT NULL,
    routing_key BLOB NOT NULL,
    last_offset INTEGER NOT NULL,
    PRIMARY KEY (sid, routing_key)
) WITHOUT ROWID;
-- Keys without records, once retention has removed those.
CREATE INDEX stream_keys_offset_idx ON stream_keys (sid, last_offset);

-- Streams with segments from before that, or of another node: keys of the records below this offset may be missing.
CREATE TABLE stream_key_gaps (
    sid          INTEGER PRIMARY KEY,
    until_offset INTEGER NOT NULL
);

-- The version of this schema; the kernel's table has the history of migrations.
CREATE VIEW schema_version AS SELECT max(version) AS version FROM schema_migrations;

CREATE VIEW index_state AS
SELECT stream, index_secret, indexed_through, updated_at_ms FROM key_indexes WHERE index_name = '';

CREATE VIEW index_runs AS
SELECT run_id, stream, level, start_segment, end_segment, object_key, size_bytes, filter_len, record_count, retired_gen,
       retired_at_ms
FROM key_runs WHERE index_name = '';

CREATE VIEW secondary_index_state AS
SELECT stream, index_name, index_secret, indexed_through, updated_at_ms FROM key_indexes WHERE index_name <> '';

CREATE VIEW secondary_index_runs AS
SELECT run_id, stream, index_name, level, start_segment, end_segment, object_key, size_bytes, filter_len, record_count,
       retired_gen, retired_at_ms
FROM key_runs WHERE index_name <> '';

CREATE VIEW wal_places AS
SELECT sid, offset, id FROM wal_index UNION ALL SELECT sid, offset, id FROM wal_recent;

-- The records of a stream in the order of offsets, for `WHERE sid = ?1 ... ORDER BY offset` with the offset among the
-- columns: both indexes are merged. In a correlated subquery SQLite would read all of both.
CREATE VIEW wal_records AS
SELECT p.sid, p.offset, p.id, w.ts_ms, w.payload, w.payload_len, w.routing_key, w.flags, w.headers
FROM wal_places AS p CROSS JOIN wal_log AS w ON w.id = p.id;

CREATE VIEW wal AS
SELECT w.id, s.stream, w.offset, w.ts_ms, w.payload, w.payload_len, w.routing_key, s.content_type, w.flags, w.headers
FROM streams AS s CROSS JOIN wal_records AS w ON w.sid = s.sid;

CREATE VIEW producer_state AS
SELECT s.stream, p.producer_id, p.epoch, p.last_seq, p.updated_at_ms
FROM producer_state_log AS p JOIN streams AS s ON s.sid = p.sid;
