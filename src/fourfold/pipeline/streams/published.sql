-- What a read of published segments asks the file of a node.

-- name: node
-- Every stream with the segments that have left the log, or begun to: one statement, so one state. A stream without any is one
-- row. The log has what lies above `uploaded_through`, and segments what lies below.
SELECT s.stream, s.incarnation, s.content_type, coalesce(m.uploaded_generation, 0), s.stream_flags & 1, s.first_offset,
       s.uploaded_through + 1, s.next_offset, p.stream, p.incarnation, coalesce(s.fork_offset, 0), s.sid,
       g.segment_id, g.start_offset, g.end_offset, g.size_bytes, g.last_append_ms
FROM streams AS s LEFT JOIN streams AS p ON p.sid = s.forked_from LEFT JOIN manifests AS m ON m.stream = s.stream
LEFT JOIN segments AS g ON g.stream = s.stream AND g.start_offset <= s.uploaded_through
ORDER BY s.stream, g.start_offset
