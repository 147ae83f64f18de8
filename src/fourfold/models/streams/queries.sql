-- name: stream_by_name
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number, updated_at_ms
FROM streams WHERE stream = ?1

-- name: stream_by_sid
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number, updated_at_ms
FROM streams WHERE sid = ?1

-- name: is_there
SELECT sid FROM streams WHERE sid = ?1

-- name: streams_after
-- In the order of their names; deleted ones are left out. One bound, so that the names before a prefix are not read.
SELECT sid, stream, created_at_ms, next_offset, content_type, stream_seq, closed, closed_producer_id,
       closed_producer_epoch, closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes,
       first_offset, forked_from, fork_offset, forks, incarnation, profile, retention_seconds, retention_bytes, wal_bytes,
       fork_asked, fork_sub_offset, schema_version, incarnation_number, updated_at_ms
FROM streams WHERE stream >= max(?1, ?2) AND +stream > ?1 AND (?3 IS NULL OR stream < ?3) AND (stream_flags & 1) = 0
ORDER BY stream LIMIT ?4

-- name: add_stream
INSERT INTO streams (stream, created_at_ms, updated_at_ms, last_segment_cut_ms, next_offset, content_type, ttl_seconds,
                     expires_at_ms, forked_from, fork_offset, incarnation, closed, first_offset, profile,
                     sealed_through, uploaded_through, retention_seconds, retention_bytes, logical_size_bytes, fork_asked, fork_sub_offset,
                     schema_version, incarnation_number)
VALUES (?1, ?2, ?20, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?3 - 1, ?3 - 1, ?13, ?14, ?15, ?16, ?17, ?18, ?19)

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
-- After an append; its records have the new updated_at_ms, which never steps back: ?1 sid, ?2 rows, ?3 bytes, ?4 now, ?5 the new end of life, ?6 Stream-Seq if one was given.
UPDATE streams SET
    next_offset = next_offset + ?2, pending_rows = pending_rows + ?2, pending_bytes = pending_bytes + ?3,
    wal_rows = wal_rows + ?2, wal_bytes = wal_bytes + ?3, logical_size_bytes = logical_size_bytes + ?3,
    updated_at_ms = max(updated_at_ms, ?4), expires_at_ms = ?5, stream_seq = coalesce(?6, stream_seq)
WHERE sid = ?1

-- name: advance_all
-- The same for many streams at once that never end and were given no Stream-Seq: sid, rows and bytes of each; then now.
WITH moved (sid, rows, bytes) AS (VALUES {rows})
UPDATE streams SET
    next_offset = next_offset + moved.rows, pending_rows = pending_rows + moved.rows,
    pending_bytes = pending_bytes + moved.bytes, wal_rows = wal_rows + moved.rows, wal_bytes = wal_bytes + moved.bytes,
    logical_size_bytes = logical_size_bytes + moved.bytes, updated_at_ms = max(updated_at_ms, ?)
FROM moved WHERE streams.sid = moved.sid

-- name: close
UPDATE streams SET closed = 1, closed_producer_id = ?2, closed_producer_epoch = ?3, closed_producer_seq = ?4,
    updated_at_ms = max(updated_at_ms, ?5), expires_at_ms = ?6
WHERE sid = ?1

-- name: touch
-- A use at ?2 moves the end of a stream with a time to live on, and never back.
UPDATE streams SET expires_at_ms = max(expires_at_ms, ?2 + 1000 * ttl_seconds) WHERE sid = ?1 AND ttl_seconds IS NOT NULL

-- name: configure
UPDATE streams SET ttl_seconds = ?2, expires_at_ms = ?3, retention_seconds = ?4, retention_bytes = ?5, updated_at_ms = max(updated_at_ms, ?6)
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
UPDATE streams SET stream_flags = stream_flags | 1, updated_at_ms = max(updated_at_ms, ?2) WHERE sid = ?1

-- name: drop_stream
DELETE FROM streams WHERE sid = ?1

-- name: add_tombstone
INSERT INTO deleted_streams (sid, stream, deleted_at_ms) VALUES (?1, ?2, ?3)

-- name: tombstones
-- Deleted streams with rows left to trim, the earliest deleted first.
SELECT sid FROM deleted_streams ORDER BY deleted_at_ms, sid LIMIT ?1

-- name: deleted_rest
-- Number of deleted streams, and what they left in the log.
SELECT (SELECT count(*) FROM deleted_streams), count(*), coalesce(sum(payload_len), 0)
FROM wal_records WHERE sid IN (SELECT sid FROM deleted_streams)

-- name: drop_tombstone
DELETE FROM deleted_streams WHERE sid = ?1

-- name: trim_producers
DELETE FROM producer_state_log WHERE (sid, producer_id) IN (
    SELECT sid, producer_id FROM producer_state_log WHERE sid = ?1 LIMIT ?2
)

-- name: trim_keys
DELETE FROM stream_keys WHERE (sid, routing_key) IN (SELECT sid, routing_key FROM stream_keys WHERE sid = ?1 LIMIT ?2)

-- name: has_rows
-- Whether anything is left of a deleted stream.
SELECT EXISTS (SELECT 1 FROM stream_keys WHERE sid = ?1) OR EXISTS (SELECT 1 FROM wal_index WHERE sid = ?1) OR EXISTS (SELECT 1 FROM wal_recent WHERE sid = ?1)
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
SELECT offset, payload, ts_ms, headers FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: record_with_key
-- A record of the log with its routing key.
SELECT offset, payload, ts_ms, headers, routing_key FROM wal_records WHERE sid = ?1 AND offset = ?2

-- name: keys_of_records
-- The routing keys of the records in a range of offsets that are in the log.
SELECT offset, routing_key FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 AND routing_key IS NOT NULL

-- name: keyed_records
-- The same for those with a routing key: ?4.
SELECT offset, payload, ts_ms, headers FROM wal_log WHERE sid = ?1 AND routing_key = ?4 AND offset >= ?2 AND offset < ?3 ORDER BY offset

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

-- name: mark_headers
UPDATE streams SET stream_flags = stream_flags | 2 WHERE sid = ?1 AND (stream_flags & 2) = 0

-- name: leave_trail
-- Where the records of stream ?1 below ?2 are in the order of all records, before they leave the log. Neighbours in both orders
-- are one entry.
INSERT INTO feed_trail (first_id, sid, first_offset, records)
SELECT min(id), ?1, min(offset), count(*) FROM wal_places WHERE sid = ?1 AND offset < ?2 GROUP BY id - offset

-- name: count_trail
UPDATE feed_state SET trail_rows = trail_rows + ?1

-- name: trail_excess
SELECT trail_rows - ?1 FROM feed_state WHERE trail_rows > ?1

-- name: trail_end
-- The last id of the first ?1 entries.
SELECT max(first_id + records - 1) FROM (SELECT first_id, records FROM feed_trail ORDER BY first_id LIMIT ?1)

-- name: drop_trail
DELETE FROM feed_trail WHERE first_id <= ?1

-- name: move_horizon
UPDATE feed_state SET horizon = max(horizon, ?1), trail_rows = trail_rows - ?2

-- name: note_trimmed
UPDATE feed_state SET trimmed_id = (SELECT max(id) FROM wal_log) WHERE trimmed_id < (SELECT max(id) FROM wal_log)

-- name: missing_id
-- The highest id that was used, if the next record would get it again.
SELECT trimmed_id FROM feed_state WHERE trimmed_id > coalesce((SELECT max(id) FROM wal_log), 0)

-- name: hold_id
INSERT INTO wal_log (id, sid, offset, ts_ms, payload, payload_len) VALUES (?1, 0, 0, 0, x'', 0)

-- name: release_id
DELETE FROM wal_log WHERE id = ?1

-- name: begin_history
INSERT OR REPLACE INTO feed_histories (history, base_id)
SELECT ?1, max(trimmed_id, coalesce((SELECT max(id) FROM wal_log), 0)) FROM feed_state

-- name: begin_after_archive
-- A log that is empty has records only in segments, which are not in the feed: cursors of earlier histories find a gap.
UPDATE feed_state SET trimmed_id = 1, horizon = 1 WHERE trimmed_id = 0 AND NOT EXISTS (SELECT 1 FROM wal_log)

-- name: feed_bounds
-- The newest id, the horizon, and the current history.
SELECT max(trimmed_id, coalesce((SELECT max(id) FROM wal_log), 0)), horizon,
       coalesce((SELECT max(history) FROM feed_histories), 0)
FROM feed_state

-- name: history_base
-- The last id of history ?1 that the current one shares; NULL if it is the current one.
SELECT min(base_id) FROM feed_histories WHERE history > ?1

-- name: feed_log
SELECT id, sid, offset, 1 FROM wal_log WHERE id > ?1 ORDER BY id

-- name: feed_trail
-- From the entry on that contains the id after ?1.
SELECT first_id, sid, first_offset, records FROM feed_trail
WHERE first_id >= coalesce((SELECT max(first_id) FROM feed_trail WHERE first_id <= ?1), 0) ORDER BY first_id

-- name: record_by_id
SELECT offset, payload, ts_ms, headers FROM wal_log WHERE id = ?1

-- name: broken_feed
-- The count of the trail, and entries that overlap others or the log.
SELECT 'count' FROM feed_state WHERE trail_rows <> (SELECT count(*) FROM feed_trail)
UNION ALL
SELECT 'tip' FROM feed_state WHERE trimmed_id < coalesce((SELECT max(first_id + records - 1) FROM feed_trail), 0) OR horizon > trimmed_id
UNION ALL
SELECT 'overlap' FROM (
    SELECT first_id + records AS next_id, lead(first_id) OVER (ORDER BY first_id) AS following FROM feed_trail
) WHERE next_id > following
UNION ALL
SELECT 'log' FROM feed_trail AS t WHERE EXISTS (SELECT 1 FROM wal_log WHERE id >= t.first_id AND id < t.first_id + t.records)
LIMIT ?1

-- name: unmarked_headers
-- Streams with records whose headers would be lost when they are sealed.
SELECT stream FROM streams
WHERE (stream_flags & 2) = 0 AND sid IN (SELECT sid FROM wal_log WHERE headers IS NOT NULL) LIMIT ?1

-- name: keep_keys
-- The routing keys of the records of stream ?1 below ?2, which leave the log.
INSERT INTO stream_keys (sid, routing_key, last_offset)
SELECT p.sid, w.routing_key, max(p.offset) FROM wal_places AS p CROSS JOIN wal_log AS w ON w.id = p.id
WHERE p.sid = ?1 AND p.offset < ?2 AND w.routing_key IS NOT NULL GROUP BY w.routing_key
ON CONFLICT (sid, routing_key) DO UPDATE SET last_offset = max(last_offset, excluded.last_offset)

-- name: forget_keys
-- At most ?3 keys whose newest record is below ?2.
DELETE FROM stream_keys WHERE (sid, routing_key) IN (
    SELECT sid, routing_key FROM stream_keys WHERE sid = ?1 AND last_offset < ?2 LIMIT ?3
)

-- name: stray_keys
-- Keys of no stream, or of records that are in the log or not there yet; gaps beyond what has left the log.
SELECT k.sid FROM stream_keys AS k LEFT JOIN streams AS s ON s.sid = k.sid
WHERE (s.sid IS NULL AND k.sid NOT IN (SELECT sid FROM deleted_streams)) OR k.last_offset > s.uploaded_through
UNION ALL
SELECT g.sid FROM stream_key_gaps AS g LEFT JOIN streams AS s ON s.sid = g.sid
WHERE s.sid IS NULL OR g.until_offset > s.uploaded_through + 1
LIMIT ?1

-- name: has_keys
SELECT EXISTS (SELECT 1 FROM wal_log WHERE sid = ?1 AND routing_key IS NOT NULL)

-- name: put_key
INSERT INTO stream_keys (sid, routing_key, last_offset) VALUES (?1, ?2, ?3)
ON CONFLICT (sid, routing_key) DO UPDATE SET last_offset = max(last_offset, excluded.last_offset)

-- name: keys_kept
-- Keys after ?2 from ?3 on and before ?4.
SELECT routing_key, last_offset FROM stream_keys
WHERE sid = ?1 AND routing_key > ?2 AND routing_key >= ?3 AND routing_key < ?4 ORDER BY routing_key LIMIT ?5

-- name: keys_in_log
-- The same for the log, with one search in its index for each key.
WITH RECURSIVE keys (routing_key) AS (
    SELECT min(routing_key) FROM wal_log WHERE sid = ?1 AND routing_key > ?2 AND routing_key >= ?3 AND routing_key < ?4
    UNION ALL
    SELECT (
        SELECT min(w.routing_key) FROM wal_log AS w WHERE w.sid = ?1 AND w.routing_key > k.routing_key AND w.routing_key < ?4
    ) FROM keys AS k WHERE k.routing_key IS NOT NULL
    LIMIT ?5
)
SELECT k.routing_key, (SELECT max(w.offset) FROM wal_log AS w WHERE w.sid = ?1 AND w.routing_key = k.routing_key)
FROM keys AS k WHERE k.routing_key IS NOT NULL

-- name: key_gap
SELECT until_offset FROM stream_key_gaps WHERE sid = ?1

-- name: key_gaps
-- Streams with a gap after sid ?1: the sid, the name, and the offset.
SELECT g.sid, s.stream, g.until_offset, max(s.first_offset, coalesce(s.fork_offset, 0))
FROM stream_key_gaps AS g JOIN streams AS s USING (sid) WHERE g.sid > ?1 ORDER BY g.sid LIMIT ?2

-- name: move_key_gap
UPDATE stream_key_gaps SET until_offset = ?3 WHERE sid = ?1 AND until_offset = ?2

-- name: close_key_gap
DELETE FROM stream_key_gaps WHERE sid = ?1 AND until_offset = ?2

-- name: note_key_gap
INSERT OR REPLACE INTO stream_key_gaps (sid, until_offset)
SELECT sid, uploaded_through + 1 FROM streams
WHERE stream = ?1 AND uploaded_through >= max(first_offset, coalesce(fork_offset, 0))
