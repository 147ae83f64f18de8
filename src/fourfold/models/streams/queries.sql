-- name: stream_by_name
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number
FROM streams WHERE stream = ?1

-- name: stream_by_sid
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number
FROM streams WHERE sid = ?1

-- name: is_there
SELECT sid FROM streams WHERE sid = ?1

-- name: streams_after
-- In the order of their names; deleted ones are left out.
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number
FROM streams WHERE stream > ?1 AND stream >= ?2 AND (?3 IS NULL OR stream < ?3) AND (stream_flags & 1) = 0
ORDER BY stream LIMIT ?4

-- name: add_stream
INSERT INTO streams (stream, created_at_ms, updated_at_ms, last_segment_cut_ms, next_offset, content_type, ttl_seconds,
                     expires_at_ms, forked_from, fork_offset, incarnation, closed, first_offset, profile,
                     sealed_through, uploaded_through, retention_seconds, retention_bytes, logical_size_bytes, fork_asked, fork_sub_offset,
                     schema_version, incarnation_number)
VALUES (?1, ?2, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?3 - 1, ?3 - 1, ?13, ?14, ?15, ?16, ?17, ?18, ?19)

-- name: next_incarnation
-- The number of a new stream: one that no stream of that name had.
SELECT coalesce(max(incarnation_number), -1) + 1 FROM stream_names WHERE stream IN ('', ?1)

-- name: past_incarnation
-- A stream of a name that had a number, here or in a history that this file does not have; '' for all names.
INSERT INTO stream_names (stream, incarnation_number) VALUES (?1, ?2)
ON CONFLICT (stream) DO UPDATE SET incarnation_number = max(incarnation_number, excluded.incarnation_number)

-- name: past_incarnation_of
SELECT incarnation_number FROM stream_names WHERE stream = ?1

-- name: reused_incarnations
SELECT s.stream FROM streams AS s JOIN stream_names AS n ON n.stream = s.stream
WHERE s.incarnation_number <= n.incarnation_number LIMIT ?1

-- name: advance
-- After an append: ?1 sid, ?2 rows, ?3 bytes, ?4 now, ?5 the new end of life, ?6 Stream-Seq if one was given.
UPDATE streams SET
    next_offset = next_offset + ?2, pending_rows = pending_rows + ?2, pending_bytes = pending_bytes + ?3,
    wal_rows = wal_rows + ?2, wal_bytes = wal_bytes + ?3, logical_size_bytes = logical_size_bytes + ?3,
    updated_at_ms = ?4, expires_at_ms = ?5, stream_seq = coalesce(?6, stream_seq)
WHERE sid = ?1

-- name: advance_all
-- The same for many streams at once that never end and were given no Stream-Seq: sid, rows and bytes of each; then now.
WITH moved (sid, rows, bytes) AS (VALUES {rows})
UPDATE streams SET
    next_offset = next_offset + moved.rows, pending_rows = pending_rows + moved.rows,
    pending_bytes = pending_bytes + moved.bytes, wal_rows = wal_rows + moved.rows, wal_bytes = wal_bytes + moved.bytes,
    logical_size_bytes = logical_size_bytes + moved.bytes, updated_at_ms = ?
FROM moved WHERE streams.sid = moved.sid

-- name: close
UPDATE streams SET closed = 1, closed_producer_id = ?2, closed_producer_epoch = ?3, closed_producer_seq = ?4,
    updated_at_ms = ?5, expires_at_ms = ?6
WHERE sid = ?1

-- name: touch
-- A use at ?2 moves the end of a stream with a time to live on, and never back.
UPDATE streams SET expires_at_ms = max(expires_at_ms, ?2 + 1000 * ttl_seconds) WHERE sid = ?1 AND ttl_seconds IS NOT NULL

-- name: configure
UPDATE streams SET ttl_seconds = ?2, expires_at_ms = ?3, retention_seconds = ?4, retention_bytes = ?5, updated_at_ms = ?6
WHERE sid = ?1

-- name: manifest_due
-- What the manifest of a stream tells beside its segments has changed.
UPDATE manifests SET generation = uploaded_generation + 1 WHERE stream = ?1

-- name: producer
SELECT epoch, last_seq FROM producer_state_log WHERE sid = ?1 AND producer_id = ?2

-- name: put_producer
INSERT INTO producer_state_log (sid, producer_id, epoch, last_seq, updated_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (sid, producer_id) DO UPDATE
SET epoch = excluded.epoch, last_seq = excluded.last_seq, updated_at_ms = excluded.updated_at_ms

-- name: add_fork
UPDATE streams SET forks = forks + ?2 WHERE sid = ?1

-- name: mark_deleted
UPDATE streams SET stream_flags = stream_flags | 1, updated_at_ms = ?2 WHERE sid = ?1

-- name: drop_stream
DELETE FROM streams WHERE sid = ?1

-- name: add_tombstone
INSERT INTO deleted_streams (sid, stream, deleted_at_ms) VALUES (?1, ?2, ?3)

-- name: tombstones
-- Deleted streams with rows left to trim, the earliest deleted first.
SELECT sid FROM deleted_streams ORDER BY deleted_at_ms, sid LIMIT ?1

-- name: drop_tombstone
DELETE FROM deleted_streams WHERE sid = ?1

-- name: trim_producers
DELETE FROM producer_state_log WHERE (sid, producer_id) IN (
    SELECT sid, producer_id FROM producer_state_log WHERE sid = ?1 LIMIT ?2
)

-- name: has_rows
-- Whether anything is left of a deleted stream.
SELECT EXISTS (SELECT 1 FROM wal_index WHERE sid = ?1) OR EXISTS (SELECT 1 FROM wal_recent WHERE sid = ?1)
    OR EXISTS (SELECT 1 FROM producer_state_log WHERE sid = ?1)

-- name: slice_of_rows
-- The first records in the log up to ?2, at most ?3 of them: the last offset of them, how many, how large.
SELECT max(offset), count(*), coalesce(sum(payload_len), 0) FROM (
    SELECT offset, payload_len FROM wal_records WHERE sid = ?1 AND offset <= ?2 ORDER BY offset LIMIT ?3
)

-- name: slice
-- The same, each beginning within the first ?4 bytes, which is four times the work.
SELECT max(offset), count(*), coalesce(sum(payload_len), 0) FROM (
    SELECT offset, payload_len, sum(payload_len) OVER (ORDER BY offset) - payload_len AS before FROM (
        SELECT offset, payload_len FROM wal_records WHERE sid = ?1 AND offset <= ?2 ORDER BY offset LIMIT ?3
    )
) WHERE before < ?4

-- name: records
-- Records of one stream in a range of offsets, with the time at which each came.
SELECT offset, payload, ts_ms FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: keyed_records
-- The same for those with a routing key: ?4.
SELECT offset, payload, ts_ms FROM wal_log WHERE sid = ?1 AND routing_key = ?4 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: joined
-- The payloads of a range of offsets as one, with ?4 between them; and how many there were, of those that have their places in
-- the large level. Nearly always that is all of them, and to walk it alone is nearly twice as fast as both.
SELECT CAST(group_concat(payload, ?4) AS BLOB), count(*) FROM (
    SELECT w.payload AS payload FROM wal_index AS i CROSS JOIN wal_log AS w ON w.id = i.id
    WHERE i.sid = ?1 AND i.offset >= ?2 AND i.offset < ?3 ORDER BY i.offset
)

-- name: expired
SELECT stream FROM streams WHERE expires_at_ms <= ?1 AND (stream_flags & 1) = 0 ORDER BY expires_at_ms LIMIT ?2

-- name: older_than
-- The first offset from ?2 on that is not older than ?3, among ?4 records; the offset after them if all are older.
SELECT coalesce(min(offset) FILTER (WHERE ts_ms >= ?3), max(offset) + 1) FROM (
    SELECT offset, ts_ms FROM wal_records WHERE sid = ?1 AND offset >= ?2 ORDER BY offset LIMIT ?4
)

-- name: with_retention
SELECT stream FROM streams
WHERE (retention_seconds IS NOT NULL OR retention_bytes IS NOT NULL) AND forks = 0 AND stream > ?1 ORDER BY stream LIMIT ?2

-- name: trim_records
DELETE FROM wal_log WHERE id IN (SELECT id FROM wal_places WHERE sid = ?1 AND offset < ?2)

-- name: trim_places
DELETE FROM wal_index WHERE sid = ?1 AND offset < ?2

-- name: trim_recent_places
DELETE FROM wal_recent WHERE sid = ?1 AND offset < ?2

-- name: place
-- The record that was just added, in the index.
INSERT INTO wal_index (sid, offset, id) VALUES (?1, ?2, last_insert_rowid())

-- name: place_last
-- The last ?1 records that were added.
INSERT INTO wal_index (sid, offset, id) SELECT sid, offset, id FROM wal_log WHERE id > last_insert_rowid() - ?1

-- name: note_last
-- The same, where there are too many streams among them to look up the place of each in the index.
INSERT INTO wal_recent (sid, offset, id) SELECT sid, offset, id FROM wal_log WHERE id > last_insert_rowid() - ?1

-- name: recent_count
SELECT count(*) FROM wal_recent

-- name: recent_end
-- What comes after the next ?2 places from the stream ?1 on.
SELECT sid, offset FROM wal_recent WHERE sid >= ?1 ORDER BY sid, offset LIMIT 1 OFFSET ?2

-- name: settle
-- The places from the stream ?1 on and before (?2, ?3) move on into the index.
INSERT INTO wal_index (sid, offset, id)
SELECT sid, offset, id FROM wal_recent WHERE sid >= ?1 AND (sid, offset) < (?2, ?3) ORDER BY sid, offset

-- name: settled
DELETE FROM wal_recent WHERE sid >= ?1 AND (sid, offset) < (?2, ?3)

-- name: held_below
-- Rows and bytes below an offset, then those of them that are in no segment.
SELECT count(*), coalesce(sum(payload_len), 0), count(*) FILTER (WHERE offset > sealed_through),
       coalesce(sum(payload_len) FILTER (WHERE offset > sealed_through), 0)
FROM wal_records JOIN streams USING (sid) WHERE sid = ?1 AND offset < ?2

-- name: log_begin
-- The first offset that is not only in segments.
SELECT uploaded_through + 1 FROM streams WHERE sid = ?1

-- name: time_of
-- When a record in the log was appended.
SELECT ts_ms FROM wal_records WHERE sid = ?1 AND offset = ?2

-- name: segment_of
-- The segment with a record: its first and last offset, and when its last record was appended.
SELECT start_offset, end_offset, last_append_ms FROM segments
WHERE stream = (SELECT stream FROM streams WHERE sid = ?1) AND start_offset <= ?2 ORDER BY start_offset DESC LIMIT 1

-- name: bytes_between
SELECT coalesce(sum(payload_len), 0) FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3

-- name: trimmed
UPDATE streams SET first_offset = ?2, pending_rows = pending_rows - ?5, pending_bytes = pending_bytes - ?6,
    wal_rows = wal_rows - ?3, wal_bytes = wal_bytes - ?4
WHERE sid = ?1

-- name: candidates
-- Streams that have enough pending to be sealed, about the fullest first. Who has so many bytes has that level too. The level
-- stands first: SQLite begins its walk of the index by the first bound that it finds.
SELECT stream, pending_rows, pending_bytes FROM streams INDEXED BY streams_pending_bytes_idx
WHERE segment_in_progress = 0 AND pending_level > (?1 >= 256) + (?1 >= 1024) + (?1 >= 4096) + (?1 >= 16384) + ?1 / 65536
  AND pending_level > 0 AND pending_bytes >= ?1
ORDER BY pending_level DESC LIMIT ?2

-- name: totals
-- All streams, their own records, and the bytes of those: in the log, and in segments that have left it.
SELECT count(*), coalesce(sum(next_offset - max(first_offset, coalesce(fork_offset, 0))), 0),
       coalesce(sum(wal_bytes), 0) + coalesce((
           SELECT sum(g.payload_bytes) FROM segments AS g JOIN streams AS s ON s.stream = g.stream
           WHERE g.uploaded_at_ms IS NOT NULL AND g.end_offset >= s.first_offset
       ), 0)
FROM streams

-- name: broken_streams
-- Every invariant of a stream's row, and its counters against its records. ?1 how many are named.
SELECT stream FROM streams AS s WHERE NOT (
    uploaded_through <= sealed_through AND sealed_through < next_offset
    AND uploaded_segment_count >= 0 AND first_offset >= 0 AND first_offset <= next_offset
    AND (s.wal_rows, s.wal_bytes, s.pending_rows, s.pending_bytes) = (
        SELECT count(*), coalesce(sum(payload_len), 0), count(*) FILTER (WHERE offset > s.sealed_through),
               coalesce(sum(payload_len) FILTER (WHERE offset > s.sealed_through), 0)
        FROM (
            SELECT i.offset, w.payload_len FROM wal_index AS i CROSS JOIN wal_log AS w ON w.id = i.id WHERE i.sid = s.sid
            UNION ALL
            SELECT r.offset, w.payload_len FROM wal_recent AS r CROSS JOIN wal_log AS w ON w.id = r.id WHERE r.sid = s.sid
        )
    )
    AND s.pending_level = (s.pending_rows > 0) * (1 + max(
        (s.pending_bytes >= 256) + (s.pending_bytes >= 1024) + (s.pending_bytes >= 4096) + (s.pending_bytes >= 16384)
            + s.pending_bytes / 65536,
        (s.pending_rows >= 16) + (s.pending_rows >= 128) + s.pending_rows / 1024
    ))
    AND s.wal_rows = s.next_offset - max(coalesce(s.fork_offset, 0), s.first_offset, s.uploaded_through + 1)
    AND s.forks = (SELECT count(*) FROM streams AS f WHERE f.forked_from = s.sid)
    AND (ttl_seconds IS NULL OR expires_at_ms IS NOT NULL)
) LIMIT ?1

-- name: stray_records
-- Records outside of what their stream has, or of no stream; lengths that are wrong.
SELECT w.sid, w.offset FROM wal_log AS w LEFT JOIN streams AS s ON s.sid = w.sid
WHERE (s.sid IS NULL AND w.sid NOT IN (SELECT sid FROM deleted_streams)) OR w.offset >= s.next_offset OR w.offset < max(coalesce(s.fork_offset, 0), s.first_offset, s.uploaded_through + 1)
   OR w.payload_len <> octet_length(w.payload) LIMIT ?1

-- name: lost_records
-- Records that are not where the index says, or in none or both of its levels; entries of no record.
SELECT sid, offset FROM (
    SELECT w.sid AS sid, w.offset AS offset FROM wal_log AS w
    WHERE (SELECT count(*) FROM wal_index AS i WHERE i.sid = w.sid AND i.offset = w.offset AND i.id = w.id)
        + (SELECT count(*) FROM wal_recent AS r WHERE r.sid = w.sid AND r.offset = w.offset AND r.id = w.id) <> 1
    UNION ALL
    SELECT i.sid, i.offset FROM wal_index AS i LEFT JOIN wal_log AS w ON w.id = i.id WHERE w.id IS NULL
    UNION ALL
    SELECT r.sid, r.offset FROM wal_recent AS r LEFT JOIN wal_log AS w ON w.id = r.id WHERE w.id IS NULL
) LIMIT ?1

-- name: stray_producers
SELECT p.sid, p.producer_id FROM producer_state_log AS p LEFT JOIN streams AS s ON s.sid = p.sid
WHERE (s.sid IS NULL AND p.sid NOT IN (SELECT sid FROM deleted_streams)) OR p.epoch < 0 OR p.last_seq < 0 LIMIT ?1

-- name: broken_tombstones
SELECT stream FROM deleted_streams WHERE sid IN (SELECT sid FROM streams) LIMIT ?1

-- name: broken_forks
SELECT s.stream FROM streams AS s LEFT JOIN streams AS p ON p.sid = s.forked_from
WHERE s.forked_from IS NOT NULL AND (p.sid IS NULL OR s.fork_offset > p.next_offset OR s.fork_offset > s.next_offset) LIMIT ?1

-- name: wrong_sizes
-- Streams that have all of their records, with another size than these. A stream is left out while its last published segment
-- has only in part left the log.
SELECT stream FROM streams AS s
WHERE forked_from IS NULL AND first_offset = 0 AND logical_size_bytes <> wal_bytes + coalesce((
    SELECT sum(g.payload_bytes) FROM segments AS g WHERE g.stream = s.stream AND g.end_offset <= s.uploaded_through
), 0) AND NOT EXISTS (
    SELECT 1 FROM segments AS g
    WHERE g.stream = s.stream AND g.start_offset <= s.uploaded_through AND g.end_offset > s.uploaded_through
) LIMIT ?1

-- name: fork_sizes
-- Forks that have all of their own records, and leave another stream where that is in the log, its end first: the name, the size
-- without their own records, the other stream, where they leave it, the end and the size of that.
WITH RECURSIVE origins (sid, fork_offset, source) AS (
    SELECT sid, fork_offset, forked_from FROM streams WHERE forked_from IS NOT NULL AND first_offset <= fork_offset
    UNION ALL
    SELECT o.sid, o.fork_offset, p.forked_from FROM origins AS o JOIN streams AS p ON p.sid = o.source
    WHERE o.fork_offset < p.fork_offset
)
SELECT s.stream, s.logical_size_bytes - s.wal_bytes - coalesce((
    SELECT sum(g.payload_bytes) FROM segments AS g WHERE g.stream = s.stream AND g.end_offset <= s.uploaded_through
), 0), p.sid, o.fork_offset, p.next_offset, p.logical_size_bytes
FROM origins AS o JOIN streams AS s ON s.sid = o.sid JOIN streams AS p ON p.sid = o.source
WHERE o.fork_offset >= max(coalesce(p.fork_offset, 0), p.first_offset, p.uploaded_through + 1) AND NOT EXISTS (
    SELECT 1 FROM segments AS g
    WHERE g.stream = s.stream AND g.start_offset <= s.uploaded_through AND g.end_offset > s.uploaded_through
)
ORDER BY p.sid, o.fork_offset DESC

-- name: details
-- What is counted of one stream beside its row: ?1 sid.
SELECT s.pending_rows, s.pending_bytes, s.wal_rows, s.wal_bytes, s.updated_at_ms, p.stream,
       (SELECT count(*) FROM producer_state_log WHERE sid = s.sid),
       (SELECT count(*) FROM subscription_links WHERE stream = s.stream)
FROM streams AS s LEFT JOIN streams AS p ON p.sid = s.forked_from WHERE s.sid = ?1

-- name: producers_of
-- Producers of one stream in the order of their ids: ?1 sid, ?2 after this id.
SELECT producer_id, epoch, last_seq, updated_at_ms FROM producer_state_log
WHERE sid = ?1 AND producer_id > ?2 ORDER BY producer_id LIMIT ?3

-- name: segments_of
-- Segments of one stream in the order of their records: ?1 stream, ?2 after this first record.
SELECT start_offset, end_offset + 1, size_bytes, payload_bytes, last_append_ms, created_at_ms, uploaded_at_ms
FROM segments WHERE stream = ?1 AND start_offset > ?2 ORDER BY start_offset LIMIT ?3

-- name: subscriptions_of
-- Subscriptions with a cursor in one stream, in the order of their ids: ?1 stream, ?2 after this id.
SELECT s.id, s.kind, s.pattern, l.explicit, l.acked, s.failures, s.created_at_ms, s.owner_prefix
FROM subscription_links AS l JOIN subscriptions AS s USING (sub)
WHERE l.stream = ?1 AND s.id > ?2 ORDER BY s.id LIMIT ?3
