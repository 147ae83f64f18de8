-- name: state
SELECT publisher, noticed_sid FROM archive_state WHERE only = 1

-- name: put_state
INSERT INTO archive_state (only, publisher, noticed_sid) VALUES (1, ?1, 0) ON CONFLICT (only) DO NOTHING

-- name: noticed
UPDATE archive_state SET noticed_sid = ?1 WHERE only = 1

-- name: new_streams
SELECT sid, stream FROM streams WHERE sid > ?1 ORDER BY sid LIMIT ?2

-- name: note_stream
-- A stream shall be published, if it is there and its manifest does not tell of it.
INSERT INTO manifests (stream, generation, uploaded_generation) SELECT stream, 1, 0 FROM streams WHERE stream = ?1
ON CONFLICT (stream) DO UPDATE SET generation = max(generation, uploaded_generation + (told_incarnation IS NOT (
    SELECT incarnation FROM streams WHERE stream = ?1
)))

-- name: due_by_bytes
-- About the fullest first. Who has so many bytes, or rows, has that level too.
SELECT stream FROM streams INDEXED BY streams_pending_bytes_idx
WHERE segment_in_progress = 0 AND pending_level > (?1 >= 256) + (?1 >= 1024) + (?1 >= 4096) + (?1 >= 16384) + ?1 / 65536
  AND pending_level > 0 AND pending_bytes >= ?1
ORDER BY pending_level DESC LIMIT ?2

-- name: due_by_rows
SELECT stream FROM streams INDEXED BY streams_pending_bytes_idx
WHERE segment_in_progress = 0 AND pending_level > (?1 >= 16) + (?1 >= 128) + ?1 / 1024
  AND pending_level > 0 AND pending_rows >= ?1
ORDER BY pending_level DESC LIMIT ?2

-- name: due_by_age
SELECT stream FROM streams INDEXED BY streams_last_cut_idx
WHERE last_segment_cut_ms <= ?1 AND pending_level > 0 AND segment_in_progress = 0
ORDER BY last_segment_cut_ms LIMIT ?2

-- name: sealable_many
-- Streams that are due by bytes (?1), rows (?2) or age (?3), from the key ?4 on, at most ?5: each with what there is to seal.
SELECT stream, pending_rows, sid, incarnation, sealed_through, max(sealed_through + 1, first_offset), next_offset, pending_bytes
FROM streams WHERE pending_rows > 0 AND (pending_bytes >= ?1 OR pending_rows >= ?2 OR last_segment_cut_ms <= ?3) AND sid > ?4
ORDER BY sid LIMIT ?5

-- name: sealable
-- What there is to seal of a stream.
SELECT sid, incarnation, sealed_through, max(sealed_through + 1, first_offset), next_offset, pending_bytes
FROM streams WHERE stream = ?1

-- name: claim
UPDATE streams SET segment_in_progress = 1 WHERE sid = ?1 AND segment_in_progress = 0

-- name: unclaim
UPDATE streams SET segment_in_progress = 0 WHERE sid = ?1

-- name: unclaim_all
UPDATE streams SET segment_in_progress = 0 WHERE segment_in_progress = 1

-- name: columns_to_seal
-- Records as columns: how many, from which offset to which, their times and the lengths of their payloads as lists, the payloads
-- as one; and whether there is anything in the other columns.
SELECT count(*), min(offset), max(offset), group_concat(ts_ms), group_concat(length(payload)),
       CAST(group_concat(payload, '') AS BLOB), min(flags), max(flags), count(routing_key)
FROM (
    SELECT offset, ts_ms, payload, flags, routing_key FROM wal_records
    WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset
)

-- name: keys_and_flags
SELECT routing_key, flags, offset FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: has_headers
-- Whether a record of the stream has or had headers.
SELECT (stream_flags & 2) > 0 FROM streams WHERE sid = ?1

-- name: headers_to_seal
SELECT headers, offset FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset

-- name: add_segment
INSERT INTO segments (segment_id, stream, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count,
                      last_append_ms, digest, local_path, created_at_ms, labeled)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 1)

-- name: segment_count
SELECT segment_count FROM stream_segment_meta WHERE stream = ?1

-- name: append_meta
-- ?2 to ?8 are the entry of one segment in each of the arrays.
INSERT INTO stream_segment_meta (stream, segment_count, segment_offsets, segment_blocks, segment_last_ts, segment_starts,
                                 segment_sizes, segment_payloads, segment_digests)
VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (stream) DO UPDATE SET
    segment_count = segment_count + 1,
    segment_offsets = CAST(segment_offsets || excluded.segment_offsets AS BLOB),
    segment_blocks = CAST(segment_blocks || excluded.segment_blocks AS BLOB),
    segment_last_ts = CAST(segment_last_ts || excluded.segment_last_ts AS BLOB),
    segment_starts = CAST(segment_starts || excluded.segment_starts AS BLOB),
    segment_sizes = CAST(segment_sizes || excluded.segment_sizes AS BLOB),
    segment_payloads = CAST(segment_payloads || excluded.segment_payloads AS BLOB),
    segment_digests = CAST(segment_digests || excluded.segment_digests AS BLOB)

-- name: sealed
-- ?2 the last offset of the new segment, ?3 and ?4 the rows and bytes that are no longer pending, ?5 now.
UPDATE streams SET sealed_through = ?2, pending_rows = pending_rows - ?3, pending_bytes = pending_bytes - ?4,
    last_segment_cut_ms = ?5, segment_in_progress = 0
WHERE sid = ?1

-- name: held_between
SELECT count(*), coalesce(sum(payload_len), 0) FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset <= ?3

-- name: drop_unpublished
-- Those of which the log has every record.
DELETE FROM segments WHERE stream = ?1 AND uploaded_at_ms IS NULL
    AND start_offset > (SELECT uploaded_through FROM streams WHERE stream = ?1)

-- name: last_segment
SELECT max(segment_index) + 1 FROM segments WHERE stream = ?1

-- name: put_meta
INSERT OR REPLACE INTO stream_segment_meta (stream, segment_count, segment_offsets, segment_blocks, segment_last_ts,
                                            segment_starts, segment_sizes, segment_payloads, segment_digests)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: unsealed
-- Everything above ?2 is pending again.
UPDATE streams SET sealed_through = ?2, segment_in_progress = 0,
    (pending_rows, pending_bytes) = (
        SELECT count(*), coalesce(sum(payload_len), 0) FROM (
            SELECT w.payload_len FROM wal_index AS i CROSS JOIN wal_log AS w ON w.id = i.id
            WHERE i.sid = streams.sid AND i.offset > ?2
            UNION ALL
            SELECT w.payload_len FROM wal_recent AS r CROSS JOIN wal_log AS w ON w.id = r.id
            WHERE r.sid = streams.sid AND r.offset > ?2
        )
    )
WHERE stream = ?1

-- name: ends
-- Where what is published ends, and where the segments end.
SELECT uploaded_through, max(uploaded_through, coalesce((SELECT max(end_offset) FROM segments AS g WHERE g.stream = s.stream), -1))
FROM streams AS s WHERE stream = ?1

-- name: pending_uploads
SELECT DISTINCT stream FROM segments WHERE uploaded_at_ms IS NULL AND stream > ?1 ORDER BY stream LIMIT ?2

-- name: due_manifests
SELECT stream FROM manifests WHERE generation > uploaded_generation AND stream > ?1 ORDER BY stream LIMIT ?2

-- name: missing_segments
-- The segments of a stream that are not published, the earliest first.
SELECT segment_id, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest,
       local_path, uploaded_at_ms
FROM segments WHERE stream = ?1 AND uploaded_at_ms IS NULL ORDER BY start_offset LIMIT ?2

-- name: segments_between
-- Segments with records in a range of offsets, first one first.
SELECT segment_id, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest,
       local_path, uploaded_at_ms
FROM segments WHERE stream = (SELECT stream FROM streams WHERE sid = ?1)
    AND start_offset >= coalesce((
        SELECT max(start_offset) FROM segments WHERE stream = (SELECT stream FROM streams WHERE sid = ?1) AND start_offset <= ?2
    ), ?2) AND start_offset < ?3
ORDER BY start_offset

-- name: first_not_older
-- The first segment that has a record not older than a time, of those that have left the log, or begun to.
SELECT start_offset FROM segments WHERE stream = ?1 AND end_offset >= ?2 AND last_append_ms >= ?3
    AND start_offset <= (SELECT uploaded_through FROM streams WHERE stream = ?1)
ORDER BY start_offset LIMIT 1

-- name: published_sizes
-- Such segments from the newest on: where each begins, and ends outside of the log, and its size.
SELECT g.start_offset, min(g.end_offset, s.uploaded_through), g.payload_bytes FROM segments AS g JOIN streams AS s USING (stream)
WHERE g.stream = ?1 AND g.start_offset <= s.uploaded_through ORDER BY g.start_offset DESC

-- name: meta
SELECT segment_count, segment_offsets, segment_blocks, segment_last_ts, segment_starts, segment_sizes, segment_payloads,
       segment_digests
FROM stream_segment_meta WHERE stream = ?1

-- name: published_row
-- All that a manifest tells of a stream.
SELECT s.sid, s.incarnation, s.created_at_ms, s.content_type, s.profile, s.stream_seq, s.closed, s.closed_producer_id,
       s.closed_producer_epoch, s.closed_producer_seq, s.ttl_seconds, s.expires_at_ms, s.stream_flags, s.retention_seconds,
       s.retention_bytes, s.first_offset, s.next_offset, s.sealed_through, s.uploaded_through, s.uploaded_segment_count,
       s.logical_size_bytes, s.fork_offset, s.fork_asked, s.fork_sub_offset, p.stream, p.incarnation, p.uploaded_through,
       s.incarnation_number
FROM streams AS s LEFT JOIN streams AS p ON p.sid = s.forked_from WHERE s.stream = ?1

-- name: manifest
SELECT generation, uploaded_generation, last_uploaded_etag, token FROM manifests WHERE stream = ?1

-- name: intend
-- ?2 the generation that is about to be uploaded, ?3 its token.
UPDATE manifests SET generation = max(generation, ?2), token = ?3 WHERE stream = ?1

-- name: uploaded_segments
UPDATE segments SET uploaded_at_ms = ?3, r2_etag = ?4 WHERE stream = ?1 AND segment_index = ?2 AND uploaded_at_ms IS NULL

-- name: recorded_manifest
-- The manifest is up: ?2 its generation, ?3 now, ?4 its version, ?5 its size; ?6 whether there is more to tell; ?7 of which
-- stream of that name it tells.
UPDATE manifests SET uploaded_generation = ?2, generation = ?2 + ?6, last_uploaded_at_ms = ?3, last_uploaded_etag = ?4,
    last_uploaded_size_bytes = ?5, token = NULL, told_incarnation = ?7
WHERE stream = ?1

-- name: recorded_stream
-- ?2 the last offset that is published, ?3 how many segments, ?4 and ?5 the rows and bytes that leave the log.
UPDATE streams SET uploaded_through = ?2, uploaded_segment_count = ?3, wal_rows = wal_rows - ?4, wal_bytes = wal_bytes - ?5
WHERE sid = ?1

-- name: retire_segments
-- Segments that the manifest that is up leaves out.
INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes, retired_at_ms)
SELECT 'streams/' || replace(segment_id, '/', '/segments/') || '.parquet', stream, size_bytes, ?3
FROM segments WHERE stream = ?1 AND segment_index < ?2 AND uploaded_at_ms IS NOT NULL

-- name: drop_retired
DELETE FROM segments WHERE stream = ?1 AND segment_index < ?2 AND uploaded_at_ms IS NOT NULL

-- name: retired_keys
SELECT object_key FROM retired_objects WHERE stream = ?1

-- name: retire_object
INSERT INTO retired_objects (object_key, stream, size_bytes, retired_at_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (object_key) DO NOTHING

-- name: expect_object
-- An object is about to be uploaded, to which nothing refers yet.
INSERT OR REPLACE INTO pending_objects (object_key, stream, size_bytes) VALUES (?1, ?2, ?3)

-- name: object_is_named
DELETE FROM pending_objects WHERE object_key = ?1

-- name: all_pending
SELECT object_key, stream, size_bytes FROM pending_objects

-- name: is_claimed
-- 1 if a row refers to an object or will delete it: ?1 its key, ?2 what it is called here.
SELECT EXISTS (SELECT 1 FROM segments WHERE segment_id = ?2) OR EXISTS (SELECT 1 FROM segment_swaps WHERE segment_id = ?2)
    OR EXISTS (SELECT 1 FROM key_runs WHERE object_key = ?1) OR EXISTS (SELECT 1 FROM retired_objects WHERE object_key = ?1)
    OR EXISTS (SELECT 1 FROM pending_objects WHERE object_key = ?1)
    OR EXISTS (SELECT 1 FROM search_segment_companions WHERE object_key = ?1)

-- name: is_named
-- 1 if a row refers to an object: ?2 is what it is called here.
SELECT EXISTS (SELECT 1 FROM segments WHERE segment_id = ?2) OR EXISTS (SELECT 1 FROM segment_swaps WHERE segment_id = ?2)
    OR EXISTS (SELECT 1 FROM key_runs WHERE object_key = ?1)
    OR EXISTS (SELECT 1 FROM search_segment_companions WHERE object_key = ?1)

-- name: begin_grace
UPDATE retired_objects SET retired_at_ms = ?2 WHERE stream = ?1 AND retired_at_ms IS NULL

-- name: deletable
SELECT object_key, stream, size_bytes, retired_at_ms FROM retired_objects
WHERE retired_at_ms IS NOT NULL AND retired_at_ms <= ?1 ORDER BY retired_at_ms LIMIT ?2

-- name: forget_object
DELETE FROM retired_objects WHERE object_key = ?1

-- name: local_segment
SELECT uploaded_at_ms FROM segments WHERE segment_id = ?1 UNION ALL SELECT 0 FROM segment_swaps WHERE segment_id = ?1

-- name: fork_source
-- The stream that a fork came from, if what the fork needs of it is not published.
SELECT p.stream FROM streams AS s JOIN streams AS p ON p.sid = s.forked_from
LEFT JOIN manifests AS m ON m.stream = p.stream
WHERE s.stream = ?1 AND (p.uploaded_through < s.fork_offset - 1 OR coalesce(m.uploaded_generation, 0) = 0)

-- name: is_stream
SELECT sid, incarnation FROM streams WHERE stream = ?1

-- name: count_request
INSERT INTO objectstore_request_counts (stream_hash, artifact, op, count, bytes, updated_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (stream_hash, artifact, op) DO UPDATE
SET count = count + excluded.count, bytes = bytes + excluded.bytes, updated_at_ms = excluded.updated_at_ms

-- name: request_counts
SELECT artifact, op, count, bytes FROM objectstore_request_counts WHERE stream_hash = ?1 ORDER BY artifact, op

-- name: status
-- How far sealing and publishing have come, over all streams.
SELECT count(*), coalesce(sum(next_offset - 1 - sealed_through), 0), coalesce(sum(pending_bytes), 0),
       coalesce(sum(sealed_through - uploaded_through), 0), coalesce(sum(next_offset - 1 - uploaded_through), 0)
FROM streams

-- name: largest_unpublished
-- The largest streams with records that are only on this disk, among the first ?1 by name, and the totals of those streams.
WITH examined AS MATERIALIZED (
    SELECT stream, next_offset - max(first_offset, uploaded_through + 1) AS records,
           pending_bytes + CASE WHEN sealed_through > uploaded_through THEN (
               SELECT coalesce(sum(g.payload_bytes), 0) FROM segments AS g WHERE g.stream = s.stream AND g.uploaded_at_ms IS NULL
           ) ELSE 0 END AS bytes
    FROM streams AS s WHERE (stream_flags & 1) = 0 ORDER BY stream LIMIT ?1
)
SELECT stream, records, bytes, count(*) OVER (), sum(records) OVER (), sum(bytes) OVER ()
FROM examined WHERE records > 0 ORDER BY bytes DESC, stream LIMIT ?2

-- name: has_more_streams
SELECT EXISTS (SELECT 1 FROM streams WHERE (stream_flags & 1) = 0 ORDER BY stream LIMIT 1 OFFSET ?1)

-- name: status_of
SELECT s.sealed_through, s.uploaded_through, coalesce(t.segment_count, 0), s.uploaded_segment_count,
       coalesce(m.generation, 0), coalesce(m.uploaded_generation, 0), m.last_uploaded_at_ms, m.last_uploaded_size_bytes
FROM streams AS s LEFT JOIN stream_segment_meta AS t ON t.stream = s.stream LEFT JOIN manifests AS m ON m.stream = s.stream
WHERE s.stream = ?1

-- name: restore_stream
INSERT INTO streams (stream, created_at_ms, updated_at_ms, last_segment_cut_ms, next_offset, sealed_through, uploaded_through,
                     uploaded_segment_count, content_type, profile, stream_seq, closed, closed_producer_id, closed_producer_epoch,
                     closed_producer_seq, ttl_seconds, expires_at_ms, stream_flags, logical_size_bytes, first_offset,
                     retention_seconds, retention_bytes, forked_from, fork_offset, fork_asked, fork_sub_offset, incarnation,
                     schema_version, incarnation_number, sid)
VALUES (?1, ?2, ?3, ?3, ?25, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?26, ?27, ?28)

-- name: defer_references
-- A stream is deleted and inserted again while its forks refer to it.
PRAGMA defer_foreign_keys = ON

-- name: forks_of
SELECT sid, forks, forked_from FROM streams WHERE stream = ?1

-- name: add_forks
UPDATE streams SET forks = forks + ?2 WHERE sid = ?1

-- name: drop_stream
-- Triggers delete what belongs to it.
DELETE FROM streams WHERE stream = ?1

-- name: drop_manifest
DELETE FROM manifests WHERE stream = ?1

-- name: drop_name
-- The stream that was deleted under this name is the same one.
DELETE FROM stream_names WHERE stream = ?1

-- name: drop_retired_of
-- The objects belong to the publisher.
DELETE FROM retired_objects WHERE stream = ?1

-- name: restore_schema
INSERT INTO schemas (stream, schema_json, updated_at_ms, uploaded_size_bytes) VALUES (?1, ?2, ?3, ?4)

-- name: restore_touch
-- Waiters start again, if the profile allows them.
INSERT INTO stream_touch_state (stream, processed_through, updated_at_ms)
SELECT stream, ?2, ?3 FROM stream_profiles WHERE stream = ?1 AND json_extract(profile_json, '$.touch.enabled')

-- name: uploaded_schema
UPDATE schemas SET uploaded_size_bytes = ?2 WHERE stream = ?1

-- name: restore_fork
UPDATE streams SET forks = forks + 1 WHERE sid = ?1

-- name: restore_segment
INSERT INTO segments (segment_id, stream, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count,
                      last_append_ms, digest, local_path, created_at_ms, uploaded_at_ms, r2_etag, labeled)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, '', ?11, ?11, NULL, ?12)

-- name: unlabeled_starts
-- First offsets of segments whose rows do not name the stream.
SELECT start_offset FROM segments WHERE stream = ?1 AND labeled = 0 ORDER BY start_offset

-- name: restore_manifest
-- It is due again: the node that it is restored on publishes from now on, and what it lacks is no longer reported.
INSERT INTO manifests (stream, generation, uploaded_generation, last_uploaded_at_ms, last_uploaded_etag,
                       last_uploaded_size_bytes, told_incarnation)
VALUES (?1, ?2 + 1, ?2, ?3, ?4, ?5, ?6)

-- name: broken_segments
-- Segments that are empty, overlap, leave a hole above what retention gave up, or are published out of order.
SELECT segment_id FROM (
    SELECT g.segment_id, g.start_offset, g.end_offset, g.segment_index, g.uploaded_at_ms, s.sid, s.first_offset,
           s.sealed_through, s.uploaded_through, s.uploaded_segment_count,
           lag(g.end_offset) OVER w AS before, lag(g.segment_index) OVER w AS index_before
    FROM segments AS g LEFT JOIN streams AS s ON s.stream = g.stream
    WINDOW w AS (PARTITION BY g.stream ORDER BY g.start_offset)
) WHERE sid IS NULL OR start_offset > end_offset OR start_offset <= before OR segment_index <> index_before + 1
    OR (start_offset > before + 1 AND start_offset > first_offset) OR end_offset > sealed_through
    OR (uploaded_at_ms IS NOT NULL) <> (end_offset <= uploaded_through)
    OR (uploaded_at_ms IS NOT NULL) <> (segment_index < uploaded_segment_count)
LIMIT ?1

-- name: broken_meta
-- Arrays of the wrong length, or streams whose segments do not end where the stream says.
SELECT t.stream FROM stream_segment_meta AS t LEFT JOIN streams AS s ON s.stream = t.stream
WHERE s.sid IS NULL OR t.segment_count < s.uploaded_segment_count
    OR octet_length(t.segment_offsets) <> 8 * t.segment_count OR octet_length(t.segment_blocks) <> 4 * t.segment_count
    OR octet_length(t.segment_last_ts) <> 8 * t.segment_count OR octet_length(t.segment_starts) <> 8 * t.segment_count
    OR octet_length(t.segment_sizes) <> 8 * t.segment_count OR octet_length(t.segment_payloads) <> 8 * t.segment_count
    OR octet_length(t.segment_digests) <> 32 * t.segment_count
    OR t.segment_count <> coalesce((SELECT max(g.segment_index) + 1 FROM segments AS g WHERE g.stream = t.stream), t.segment_count)
LIMIT ?1

-- name: broken_marks
-- Streams that say more is sealed or published than there are segments for.
SELECT s.stream FROM streams AS s LEFT JOIN stream_segment_meta AS t ON t.stream = s.stream
WHERE (s.sealed_through <> coalesce(s.fork_offset, 0) - 1 AND t.stream IS NULL)
    OR (s.uploaded_segment_count > 0 AND t.stream IS NULL)
    OR s.sealed_through < coalesce((SELECT max(g.end_offset) FROM segments AS g WHERE g.stream = s.stream), -1)
LIMIT ?1

-- name: all_meta
SELECT stream FROM stream_segment_meta ORDER BY stream

-- name: segment_rows
SELECT segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest
FROM segments WHERE stream = ?1 ORDER BY start_offset

-- name: broken_manifests
SELECT stream FROM manifests WHERE uploaded_generation > generation OR (uploaded_generation > 0 AND last_uploaded_etag IS NULL)
LIMIT ?1

-- name: every_manifest
SELECT stream, uploaded_generation FROM manifests WHERE uploaded_generation > 0 AND stream > ?1
ORDER BY stream LIMIT ?2

-- name: uploaded_count
SELECT uploaded_segment_count FROM streams WHERE stream = ?1

-- name: drop_meta
DELETE FROM stream_segment_meta WHERE stream = ?1

-- name: forget_manifest
DELETE FROM manifests WHERE stream = ?1 AND uploaded_generation = 0 AND NOT EXISTS (SELECT 1 FROM streams WHERE stream = ?1)

-- name: size_and_size_after
-- The bytes of a stream, and those of them after an offset. Sealed segments say theirs; only what retention may have
-- given up in part is counted record by record.
SELECT s.logical_size_bytes, CASE WHEN s.first_offset > ?2 + 1
    THEN (SELECT coalesce(sum(w.payload_len), 0) FROM wal_records AS w WHERE w.sid = ?1 AND w.offset > ?2)
    ELSE s.pending_bytes + coalesce((SELECT sum(g.payload_bytes) FROM segments AS g WHERE g.stream = s.stream AND g.start_offset > ?2), 0)
    END
FROM streams AS s WHERE s.sid = ?1

-- name: pending
SELECT pending_rows, pending_bytes, last_segment_cut_ms FROM streams WHERE stream = ?1

-- name: unpublished
-- Whether there is anything of a stream to publish now.
SELECT EXISTS (SELECT 1 FROM segments WHERE stream = ?1 AND uploaded_at_ms IS NULL)
    OR EXISTS (SELECT 1 FROM manifests WHERE stream = ?1 AND generation > uploaded_generation)

-- name: unpublished_until
-- Whether a record before the offset ?2 is not published yet.
SELECT EXISTS (SELECT 1 FROM streams WHERE stream = ?1 AND uploaded_through + 1 < ?2)

-- name: unsettled
-- Whether anything of a stream is not published yet: a record, its end, its being there.
SELECT EXISTS (SELECT 1 FROM manifests WHERE stream = ?1 AND generation > uploaded_generation)
    OR EXISTS (
        SELECT 1 FROM streams AS s LEFT JOIN manifests AS m ON m.stream = s.stream
        WHERE s.stream = ?1 AND (s.uploaded_through < s.next_offset - 1 AND s.first_offset < s.next_offset
                                 OR m.stream IS NULL OR m.told_incarnation IS NOT s.incarnation)
    )

-- name: swaps
-- Compacted segments that wait for a manifest.
SELECT segment_id, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest
FROM segment_swaps WHERE stream = ?1 ORDER BY start_offset

-- name: add_swap
INSERT OR REPLACE INTO segment_swaps (segment_id, stream, start_offset, end_offset, size_bytes, payload_bytes, block_count,
                                      last_append_ms, digest)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: drop_swap
DELETE FROM segment_swaps WHERE segment_id = ?1

-- name: due_again
-- There is more for the manifest to tell.
UPDATE manifests SET generation = max(generation, uploaded_generation + 1) WHERE stream = ?1

-- name: retire_swapped
-- The segments that were compacted: ?2 and ?3 are the offsets, ?4 is now.
INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes, retired_at_ms)
SELECT 'streams/' || replace(segment_id, '/', '/segments/') || '.parquet', stream, size_bytes, ?4
FROM segments WHERE stream = ?1 AND start_offset >= ?2 AND end_offset <= ?3

-- name: drop_swapped
DELETE FROM segments WHERE stream = ?1 AND start_offset >= ?2 AND end_offset <= ?3

-- name: renumber_segments
-- Those after ?2 move ?3 places down.
UPDATE segments SET segment_index = segment_index - ?3 WHERE stream = ?1 AND start_offset > ?2

-- name: fewer_segments
UPDATE streams SET uploaded_segment_count = uploaded_segment_count - ?2 WHERE stream = ?1

-- name: retire_companions
-- Companions of the segments ?2 to ?3; ?4 is now.
INSERT OR IGNORE INTO retired_objects (object_key, stream, size_bytes, retired_at_ms)
SELECT object_key, stream, size_bytes, ?4 FROM search_segment_companions
WHERE stream = ?1 AND segment_index >= ?2 AND segment_index <= ?3

-- name: drop_companions
DELETE FROM search_segment_companions WHERE stream = ?1 AND segment_index >= ?2 AND segment_index <= ?3

-- name: renumber_companions
UPDATE search_segment_companions SET segment_index = segment_index - ?3 WHERE stream = ?1 AND segment_index > ?2

-- name: renumber_runs
-- Which segments hold the ends of each run.
UPDATE key_runs SET
    start_segment = coalesce((SELECT max(g.segment_index) FROM segments AS g WHERE g.stream = key_runs.stream
                              AND g.start_offset <= key_runs.start_offset), 0),
    end_segment = coalesce((SELECT max(g.segment_index) FROM segments AS g WHERE g.stream = key_runs.stream
                            AND g.start_offset <= key_runs.end_offset), 0)
WHERE stream = ?1

-- name: renumber_indexes
UPDATE key_indexes SET indexed_through = coalesce((
    SELECT max(g.segment_index) + 1 FROM segments AS g WHERE g.stream = key_indexes.stream AND g.end_offset < indexed_offset
), (SELECT min(g.segment_index) FROM segments AS g WHERE g.stream = key_indexes.stream), 0)
WHERE stream = ?1

-- name: compactable
-- Published segments in order, those of one stream.
SELECT segment_id, segment_index, start_offset, end_offset, size_bytes, payload_bytes, block_count, last_append_ms, digest,
       local_path, uploaded_at_ms
FROM segments WHERE stream = ?1 AND uploaded_at_ms IS NOT NULL AND end_offset >= (
    SELECT first_offset FROM streams WHERE stream = ?1
) ORDER BY start_offset

-- name: streams_with_segments
-- Streams with at least ?2 published segments, or with segments whose rows do not name the stream, in the order of their names.
SELECT s.stream, s.incarnation FROM streams AS s
WHERE s.stream > ?1 AND (
    s.uploaded_segment_count >= ?2
    OR EXISTS (SELECT 1 FROM segments AS g WHERE g.stream = s.stream AND g.labeled = 0 AND g.uploaded_at_ms IS NOT NULL)
) ORDER BY s.stream LIMIT ?3

-- name: broken_swaps
SELECT w.segment_id FROM segment_swaps AS w LEFT JOIN streams AS s ON s.stream = w.stream
WHERE s.sid IS NULL OR w.start_offset > w.end_offset OR w.end_offset > s.uploaded_through LIMIT ?1

-- name: broken_companions
SELECT c.object_key FROM search_segment_companions AS c LEFT JOIN segments AS g
    ON g.stream = c.stream AND g.segment_index = c.segment_index
WHERE g.segment_id IS NULL OR NOT EXISTS (SELECT 1 FROM search_companion_plans AS p WHERE p.stream = c.stream) LIMIT ?1

-- name: first_kept
-- Where the segments that are kept begin.
SELECT coalesce((SELECT min(start_offset) FROM segments WHERE stream = ?1), 0)
