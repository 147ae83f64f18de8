-- Deleted streams whose records are still being trimmed. The row of the stream is gone from `streams`, and with it everything that
-- is found by its name; what is left is found by its `sid`, which is never used again.
CREATE TABLE deleted_streams (
    sid           INTEGER PRIMARY KEY,
    stream        TEXT NOT NULL,
    deleted_at_ms INTEGER NOT NULL
);

-- The state of producers outlives the row of its stream for as long as that takes, so it no longer refers to it.
DROP VIEW producer_state;
ALTER TABLE producer_state_log RENAME TO producer_state_referring;
CREATE TABLE producer_state_log (
    sid           INTEGER NOT NULL,
    producer_id   TEXT NOT NULL,
    epoch         INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (sid, producer_id)
) WITHOUT ROWID;
INSERT INTO producer_state_log SELECT sid, producer_id, epoch, last_seq, updated_at_ms FROM producer_state_referring;
DROP TABLE producer_state_referring;
CREATE VIEW producer_state AS
SELECT s.stream, p.producer_id, p.epoch, p.last_seq, p.updated_at_ms
FROM producer_state_log AS p JOIN streams AS s ON s.sid = p.sid;

-- Streams with retention, for the sweeper: most have none.
CREATE INDEX streams_retention_idx ON streams (stream) WHERE retention_seconds IS NOT NULL OR retention_bytes IS NOT NULL;
