-- What a point of a store asks of the streams.

-- name: moved_since
-- The streams whose manifests were written at or after a time, and how far each tells of its stream.
SELECT m.stream, m.uploaded_generation, coalesce(s.uploaded_through, -1), coalesce(m.told_incarnation, '')
FROM manifests AS m
LEFT JOIN streams AS s ON s.stream = m.stream AND s.incarnation = m.told_incarnation
WHERE m.last_uploaded_at_ms >= ?1 ORDER BY m.stream
