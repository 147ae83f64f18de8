-- Headers of a record, as JSON; NULL without any. Bit 2 of `stream_flags`: a record of the stream had headers.
ALTER TABLE wal_log ADD COLUMN headers BLOB;

DROP VIEW wal;
DROP VIEW wal_records;
CREATE VIEW wal_records AS
SELECT p.sid, p.offset, p.id, w.ts_ms, w.payload, w.payload_len, w.routing_key, w.flags, w.headers
FROM wal_places AS p CROSS JOIN wal_log AS w ON w.id = p.id;
CREATE VIEW wal AS
SELECT w.id, s.stream, w.offset, w.ts_ms, w.payload, w.payload_len, w.routing_key, s.content_type, w.flags, w.headers
FROM streams AS s CROSS JOIN wal_records AS w ON w.sid = s.sid;
