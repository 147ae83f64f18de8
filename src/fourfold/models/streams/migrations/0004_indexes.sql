-- Indexes over published segments, and what is under way between segments and manifests. Nothing here is touched by an append,
-- but for the index of routing keys by an append that has one.

-- Records of one routing key that are still in the log.
CREATE INDEX wal_stream_key_idx ON wal_log (sid, routing_key, offset) WHERE routing_key IS NOT NULL;

-- One row per index of a stream: '' is that of the routing key, another name that of a field of JSON messages. Runs speak of
-- offsets, not of segments: segments may be compacted, and the runs stay right. `indexed_offset` is the first offset that no run
-- covers; `indexed_through` how many segments, from the first one ever, lie wholly below it.
CREATE TABLE key_indexes (
    stream          TEXT NOT NULL,
    index_name      TEXT NOT NULL,
    index_secret    BLOB NOT NULL CHECK (length(index_secret) = 16),
    indexed_through INTEGER NOT NULL,
    indexed_offset  INTEGER NOT NULL,
    updated_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (stream, index_name)
) WITHOUT ROWID;

-- One row per run: a sorted file of which keys are in which offsets. Both ends of both ranges are included. A run that was merged
-- into a larger one, or whose records were given up, has `retired_at_ms`; and `retired_gen` once a manifest is up that leaves it
-- out. It goes when its object is deleted.
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

-- Which companions of its segments a stream wants, and those that are published.
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

-- Segments that are uploaded, and take the place of those that they were compacted from with the next manifest.
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

-- Objects that are being uploaded, and that nothing speaks of yet. What a crash leaves here is retired.
CREATE TABLE pending_objects (
    object_key TEXT PRIMARY KEY,
    stream     TEXT NOT NULL,
    size_bytes INTEGER NOT NULL
) WITHOUT ROWID;

-- A stream that is gone leaves all of its objects to be deleted, and a manifest that says so.
DROP TRIGGER archive_removed;
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
