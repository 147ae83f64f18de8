-- The archive of the streams: records that were sealed into segments, and what was published of them.
-- Nothing here is touched by an append.

-- One row per segment that has, or had, a file here, and is still a part of its stream. Offsets are those of its first and its
-- last record. While `uploaded_at_ms` is NULL its records are in `wal_log` too; afterwards they are not.
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
    -- Where it was built, below the folder of local segments. It is there until it is published.
    local_path     TEXT NOT NULL,
    created_at_ms  INTEGER NOT NULL,
    uploaded_at_ms INTEGER,
    r2_etag        TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX segments_stream_start_idx ON segments (stream, start_offset);
CREATE INDEX segments_pending_upload_idx ON segments (stream, start_offset) WHERE uploaded_at_ms IS NULL;

-- The same as arrays that only grow, from which a manifest is made at once: little-endian integers, 8 bytes each unless said
-- otherwise. Segments that were given up stay in them.
CREATE TABLE stream_segment_meta (
    stream           TEXT PRIMARY KEY,
    segment_count    INTEGER NOT NULL,
    segment_offsets  BLOB NOT NULL, -- the end offset of each, plus one
    segment_blocks   BLOB NOT NULL, -- row groups, 4 bytes each
    segment_last_ts  BLOB NOT NULL, -- when the last record came, in nanoseconds since 1970
    segment_starts   BLOB NOT NULL,
    segment_sizes    BLOB NOT NULL,
    segment_payloads BLOB NOT NULL,
    segment_digests  BLOB NOT NULL  -- SHA-256, 32 bytes each
) WITHOUT ROWID;

-- The manifest of each stream that is, or was, published. It outlives its stream, so that the next one of that name goes on from
-- its version. A manifest is due while `generation` is ahead.
CREATE TABLE manifests (
    stream                   TEXT PRIMARY KEY,
    generation               INTEGER NOT NULL,
    uploaded_generation      INTEGER NOT NULL,
    last_uploaded_at_ms      INTEGER,
    last_uploaded_etag       TEXT,
    last_uploaded_size_bytes INTEGER,
    -- What the manifest that is being uploaded is known by, should no answer come.
    token                    TEXT,
    -- The stream of that name of which it tells; NULL for none.
    told_incarnation         TEXT,
    CHECK (0 <= uploaded_generation AND uploaded_generation <= generation)
) WITHOUT ROWID;
CREATE INDEX manifests_due_idx ON manifests (stream) WHERE generation > uploaded_generation;

-- Objects that no manifest will speak of any more. They are deleted some time after the manifest that leaves them out.
CREATE TABLE retired_objects (
    object_key    TEXT PRIMARY KEY,
    stream        TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    -- NULL until that manifest is uploaded.
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

-- Who publishes from here, under which name, and up to which stream it has looked for new ones.
CREATE TABLE archive_state (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    publisher   TEXT NOT NULL,
    noticed_sid INTEGER NOT NULL
);

-- What a manifest tells beside its segments has changed. An append changes none of it.
CREATE TRIGGER archive_changed AFTER UPDATE OF closed, stream_flags, first_offset ON streams
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;

-- A stream that is gone leaves its objects to be deleted, and a manifest that says so.
CREATE TRIGGER archive_removed AFTER DELETE ON streams
BEGIN
    INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes)
    SELECT 'streams/' || replace(segment_id, '/', '/segments/') || '.parquet', stream, size_bytes
    FROM segments WHERE stream = old.stream;
    DELETE FROM segments WHERE stream = old.stream;
    DELETE FROM stream_segment_meta WHERE stream = old.stream;
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = old.stream;
END;
