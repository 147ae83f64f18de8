-- What a stream asks of its records, and who waits for changes of what they tell. Nothing here is touched by an append to a
-- stream that asks for nothing. All of it goes with its stream.

-- Which version the registry of a stream is at; 0 when it has no schema but other declarations, NULL when there is no registry.
ALTER TABLE streams ADD COLUMN schema_version INTEGER;

-- The registry of a stream's schemas: the versions, from which offset on each holds, the lenses between them, and where its
-- messages have their routing key. `uploaded_size_bytes` is how much of it the last published manifest tells; 0 before.
CREATE TABLE schemas (
    stream              TEXT PRIMARY KEY,
    schema_json         TEXT NOT NULL,
    updated_at_ms       INTEGER NOT NULL,
    uploaded_size_bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- What a stream is used as, where that is more than a stream. The kind is in `streams.profile` too.
CREATE TABLE stream_profiles (
    stream        TEXT PRIMARY KEY,
    profile_json  TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- How far the changes of a stream were looked at for those who wait for some of them. It can be made again from the stream.
CREATE TABLE stream_touch_state (
    stream            TEXT PRIMARY KEY,
    processed_through INTEGER NOT NULL,
    updated_at_ms     INTEGER NOT NULL
) WITHOUT ROWID;

-- Questions about the rows of an entity, by the fields that they compare; those who wait give the values.
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
-- Templates that were not requested lately.
CREATE INDEX live_templates_seen_idx ON live_templates (state, last_seen_at_ms);

CREATE TRIGGER rules_removed AFTER DELETE ON streams
BEGIN
    DELETE FROM schemas WHERE stream = old.stream;
    DELETE FROM stream_profiles WHERE stream = old.stream;
    DELETE FROM stream_touch_state WHERE stream = old.stream;
    DELETE FROM live_templates WHERE stream = old.stream;
END;

-- A manifest tells of both.
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
CREATE TRIGGER profile_changed AFTER UPDATE OF profile ON streams
BEGIN
    UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = new.stream;
END;
