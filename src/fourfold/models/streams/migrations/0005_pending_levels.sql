-- Which streams are due to be sealed, without a cost for every append. An index on what is pending would be rewritten by
-- each of them: two pages more to every commit. So streams are indexed by about how much is pending, which seldom changes.

-- 0 when nothing is pending. Otherwise 1 and a level that grows with the bytes and with the rows, whichever is higher: a step
-- at 256, 1024, 4096 and 16384 bytes and then every 64 KiB; at 16 and 128 rows and then every 1,024.
ALTER TABLE streams ADD COLUMN pending_level INTEGER NOT NULL DEFAULT 0;

UPDATE streams SET pending_level = 1 + max(
    (pending_bytes >= 256) + (pending_bytes >= 1024) + (pending_bytes >= 4096) + (pending_bytes >= 16384) + pending_bytes / 65536,
    (pending_rows >= 16) + (pending_rows >= 128) + pending_rows / 1024
) WHERE pending_rows > 0;

DROP INDEX streams_pending_bytes_idx;
DROP INDEX streams_last_cut_idx;
DROP INDEX IF EXISTS streams_pending_rows_idx;
CREATE INDEX streams_pending_bytes_idx ON streams (segment_in_progress, pending_level) WHERE pending_level > 0;
CREATE INDEX streams_last_cut_idx ON streams (last_segment_cut_ms) WHERE pending_level > 0;

-- Whatever changes the counters, the level follows.
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
