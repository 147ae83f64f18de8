-- Where the records of a stream lie in the log, in two levels. One index over all of them would be written in as many places as
-- a commit has streams: 64 appends to 64 streams were 64 pages more, most of what was written. So what comes scattered is noted
-- in a table that is small enough to have few pages, and moved on in portions, sorted by stream.

-- Each record of `wal_log` is in one of these two.
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

INSERT INTO wal_index (sid, offset, id) SELECT sid, offset, id FROM wal_log ORDER BY sid, offset;
DROP INDEX wal_stream_offset_uniq;

CREATE VIEW wal_places AS
SELECT sid, offset, id FROM wal_index UNION ALL SELECT sid, offset, id FROM wal_recent;

-- The records of a stream in the order of their offsets, for `WHERE sid = ?1 ... ORDER BY offset` with the offset among the
-- columns: both levels are walked side by side. In a subquery that refers to a row outside of it, SQLite would read all of both.
CREATE VIEW wal_records AS
SELECT p.sid, p.offset, p.id, w.ts_ms, w.payload, w.payload_len, w.routing_key, w.flags
FROM wal_places AS p CROSS JOIN wal_log AS w ON w.id = p.id;

-- The log with names, found by them.
DROP VIEW wal;
CREATE VIEW wal AS
SELECT w.id, s.stream, w.offset, w.ts_ms, w.payload, w.payload_len, w.routing_key, s.content_type, w.flags
FROM streams AS s CROSS JOIN wal_records AS w ON w.sid = s.sid;
