-- What a point of a store asks of the streams.

-- name: moved_since
-- The streams whose manifests were written at or after a time, and how far each tells of its stream. That is the end of its
-- last published segment: while records are trimmed from the log, `uploaded_through` lies within the next one.
SELECT m.stream, m.uploaded_generation,
       coalesce(
           (SELECT g.end_offset FROM segments AS g WHERE g.stream = s.stream AND g.uploaded_at_ms IS NOT NULL
            ORDER BY g.start_offset DESC LIMIT 1),
           (SELECT min(g.start_offset) - 1 FROM segments AS g WHERE g.stream = s.stream),
           s.uploaded_through,
           -1),
       coalesce(m.told_incarnation, '')
FROM manifests AS m
LEFT JOIN streams AS s ON s.stream = m.stream AND s.incarnation = m.told_incarnation
WHERE m.last_uploaded_at_ms >= ?1 ORDER BY m.stream

-- name: labeled_segments
-- Segments that the recorded manifest of a stream lists, if their rows name the stream.
SELECT s.stream, s.incarnation, g.segment_id, g.start_offset, g.end_offset, g.size_bytes, g.last_append_ms, g.digest
FROM manifests AS m JOIN streams AS s ON s.stream = m.stream AND s.incarnation = m.told_incarnation
JOIN segments AS g ON g.stream = s.stream
WHERE m.stream = ?1 AND g.uploaded_at_ms IS NOT NULL AND g.labeled = 1 ORDER BY g.start_offset
