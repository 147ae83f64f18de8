-- The queries of a read of segments on the file of a node.

-- name: node
-- Every stream with its segments that are, or are being, trimmed from the log: one statement, so one state. A stream without
-- segments is one row. The log has the records above `uploaded_through`, segments those below.
SELECT s.stream, s.incarnation, s.content_type, coalesce(m.uploaded_generation, 0), s.stream_flags & 1, s.first_offset,
       s.uploaded_through + 1, s.next_offset, p.stream, p.incarnation, coalesce(s.fork_offset, 0), s.sid,
       g.segment_id, g.start_offset, g.end_offset, g.size_bytes, g.last_append_ms, g.digest, g.labeled
FROM streams AS s LEFT JOIN streams AS p ON p.sid = s.forked_from LEFT JOIN manifests AS m ON m.stream = s.stream
LEFT JOIN segments AS g ON g.stream = s.stream AND g.start_offset <= s.uploaded_through
ORDER BY s.stream, g.start_offset

-- name: horizon
SELECT horizon FROM feed_state

-- name: offsets_after
-- The offset of the first record of each stream after position ?1, in the log or in the trail of what has left it.
SELECT sid, min(offset) FROM (
    SELECT sid, offset FROM wal_log WHERE id > ?1
    UNION ALL
    SELECT sid, first_offset + max(?1 + 1 - first_id, 0) FROM feed_trail
    WHERE first_id >= coalesce((SELECT max(first_id) FROM feed_trail WHERE first_id <= ?1), 0) AND first_id + records > ?1 + 1
) GROUP BY sid

-- name: logged_after
-- The same for records in the log.
SELECT sid, min(offset) FROM wal_log WHERE id > ?1 GROUP BY sid
