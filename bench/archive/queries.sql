-- name: rows
-- Records as rows, for a limit that takes them apart itself.
SELECT offset, ts_ms, routing_key, flags, payload FROM wal_records WHERE sid = ?1 AND offset >= ?2 AND offset < ?3 ORDER BY offset
