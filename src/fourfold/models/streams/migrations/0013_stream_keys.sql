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
INSERT INTO stream_key_gaps (sid, until_offset)
SELECT sid, uploaded_through + 1 FROM streams WHERE uploaded_through >= max(first_offset, coalesce(fork_offset, 0));
CREATE TRIGGER stream_keys_ended AFTER DELETE ON streams
BEGIN
    DELETE FROM stream_key_gaps WHERE sid = old.sid;
END;
