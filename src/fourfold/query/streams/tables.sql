-- The tables of streams. Deleted streams are not shown; published records are no longer here.
--
-- ?1 and ?2 bound the position of a record: after ?1, until ?2. The cut, a number, is where the fold stops.

-- name: scan
-- Wraps a query: a sample row that fixes the type of every column, then the selected rows.
SELECT {samples} {parts}

-- name: part
UNION ALL SELECT {columns} FROM ({query}) WHERE {conditions}

-- name: named
-- Wraps a query to select some streams.
SELECT * FROM ({query}) WHERE stream GLOB {pattern}

-- name: horizon
-- None: see whole_after.
SELECT 0

-- name: whole_after
-- Retention and the archive delete records at any position; a streaming read checks its own offsets instead.
SELECT ?1 >= 0

-- name: position
-- The newest record, also if it has left the log.
SELECT max(trimmed_id, coalesce((SELECT max(id) FROM wal_log), 0)) FROM feed_state

-- name: position_at
SELECT coalesce(max(id), 0) FROM wal_log WHERE ts_ms <= ?1

-- name: greatest_sid
SELECT coalesce(max(sid), 0) FROM streams

-- name: records
SELECT
    w.id AS position, s.stream AS stream, w.offset AS offset,
    strftime('%Y-%m-%dT%H:%M:%S', w.ts_ms / 1000, 'unixepoch') || printf('.%03dZ', w.ts_ms % 1000) AS time,
    w.payload AS payload,
    CASE
        WHEN s.content_type LIKE 'application/json%' OR s.content_type LIKE 'text/%' THEN CAST(w.payload AS TEXT)
    END AS text,
    w.payload_len AS size, CAST(w.routing_key AS TEXT) AS routing_key, CAST(w.headers AS TEXT) AS headers, s.content_type AS content_type
FROM wal_log AS w JOIN streams AS s ON s.sid = w.sid
WHERE (s.stream_flags & 1) = 0

-- name: generation
-- Sums that change when a stream is created, changed, trimmed or deleted.
SELECT count(*), total(sid), total(updated_at_ms), total(first_offset), total(next_offset), total(closed), total(stream_flags),
    total(wal_rows), total(forks), total(coalesce(schema_version, 0)), total(coalesce(expires_at_ms, 0))
FROM streams

-- name: published
-- Streams with own records that are only in segments.
SELECT stream FROM streams
WHERE (stream_flags & 1) = 0 AND max(first_offset, coalesce(fork_offset, 0)) <= uploaded_through AND {conditions}
LIMIT {count}

-- name: streams
-- The streams as they are now, without those that were created after the newest record of the cut, if there are later ones.
SELECT
    s.stream AS stream, s.content_type AS content_type,
    strftime('%Y-%m-%dT%H:%M:%S', s.created_at_ms / 1000, 'unixepoch') || printf('.%03dZ', s.created_at_ms % 1000) AS created,
    strftime('%Y-%m-%dT%H:%M:%S', s.updated_at_ms / 1000, 'unixepoch') || printf('.%03dZ', s.updated_at_ms % 1000) AS updated,
    s.first_offset AS first_offset, s.next_offset AS next_offset, s.wal_rows AS records, s.wal_bytes AS bytes,
    s.logical_size_bytes AS size, s.closed AS closed, s.ttl_seconds AS ttl_seconds,
    strftime('%Y-%m-%dT%H:%M:%S', s.expires_at_ms / 1000, 'unixepoch') || printf('.%03dZ', s.expires_at_ms % 1000) AS expires,
    (SELECT p.stream FROM streams AS p WHERE p.sid = s.forked_from) AS forked_from, s.fork_offset AS fork_offset,
    s.forks AS forks, s.profile AS profile, s.schema_version AS schema_version
FROM streams AS s
WHERE (s.stream_flags & 1) = 0
    AND CASE
        WHEN NOT EXISTS (SELECT 1 FROM wal_log WHERE id > ?2) THEN 1
        WHEN ?2 = 0 THEN 0
        ELSE s.created_at_ms <= coalesce(
            (SELECT ts_ms FROM wal_log WHERE id <= ?2 ORDER BY id DESC LIMIT 1),
            (SELECT ts_ms - 1 FROM wal_log WHERE id > ?2 ORDER BY id LIMIT 1)
        )
    END

-- name: schemas
-- The versions of every registry: the first offset of each, its schema, and the lens to it. An offset is formatted as 16
-- digits of a generation, an underscore, and 16 digits of a number. A schema is an object, or true, or false.
SELECT
    s.stream AS stream, CAST(v.key AS INTEGER) AS version,
    (SELECT CAST(substr(b.value ->> 'offset', 18) AS INTEGER) FROM json_each(r.schema_json, '$.boundaries') AS b
     WHERE b.value ->> 'version' >= CAST(v.key AS INTEGER) ORDER BY b.key LIMIT 1) AS from_offset,
    CASE v.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE v.value END AS schema,
    json_extract(r.schema_json, '$.lenses."' || (CAST(v.key AS INTEGER) - 1) || '"') AS lens,
    CAST(v.key AS INTEGER) = s.schema_version AS current
FROM schemas AS r CROSS JOIN streams AS s ON s.stream = r.stream CROSS JOIN json_each(r.schema_json, '$.schemas') AS v
WHERE (s.stream_flags & 1) = 0
    AND CASE
        WHEN NOT EXISTS (SELECT 1 FROM wal_log WHERE id > ?2) THEN 1
        WHEN ?2 = 0 THEN 0
        ELSE s.created_at_ms <= coalesce(
            (SELECT ts_ms FROM wal_log WHERE id <= ?2 ORDER BY id DESC LIMIT 1),
            (SELECT ts_ms - 1 FROM wal_log WHERE id > ?2 ORDER BY id LIMIT 1)
        )
    END

-- name: registries
-- The registries of streams with several versions. Streams are looked up by name, which is fast if few of many have one.
SELECT s.sid, s.stream, s.incarnation, r.schema_json, s.first_offset
FROM schemas AS r CROSS JOIN streams AS s ON s.stream = r.stream
WHERE s.schema_version > 1 AND (s.stream_flags & 1) = 0 AND (?1 IS NULL OR s.stream GLOB ?1)

-- name: producers
SELECT
    s.stream AS stream, p.producer_id AS producer, p.epoch AS epoch, p.last_seq AS last_seq,
    strftime('%Y-%m-%dT%H:%M:%S', p.updated_at_ms / 1000, 'unixepoch') || printf('.%03dZ', p.updated_at_ms % 1000) AS updated
FROM producer_state_log AS p JOIN streams AS s ON s.sid = p.sid
WHERE (s.stream_flags & 1) = 0
    AND CASE
        WHEN NOT EXISTS (SELECT 1 FROM wal_log WHERE id > ?2) THEN 1
        WHEN ?2 = 0 THEN 0
        ELSE s.created_at_ms <= coalesce(
            (SELECT ts_ms FROM wal_log WHERE id <= ?2 ORDER BY id DESC LIMIT 1),
            (SELECT ts_ms - 1 FROM wal_log WHERE id > ?2 ORDER BY id LIMIT 1)
        )
    END

-- name: changes
-- The input of the fold of state streams: the messages of every JSON stream with a key after ?1 until ?2, beginning with
-- those that it shares with its sources. A link of the chain has the offsets from `low` to below `high`.
WITH RECURSIVE chain (stream, own, sid, low, high) AS (
    SELECT stream, sid, sid, coalesce(fork_offset, 0), next_offset FROM streams
    WHERE sid > ?1 AND sid <= ?2 AND (stream_flags & 1) = 0 AND content_type LIKE 'application/json%' AND {conditions}
    UNION ALL
    SELECT c.stream, c.own, p.sid, coalesce(p.fork_offset, 0), min(c.low, c.high)
    FROM chain AS c JOIN streams AS m ON m.sid = c.sid JOIN streams AS p ON p.sid = m.forked_from
)
SELECT {samples} UNION ALL SELECT {columns} FROM (
    SELECT c.own AS own, c.stream AS stream, i.offset AS offset, w.payload AS payload
    FROM chain AS c CROSS JOIN wal_index AS i
    ON i.sid = c.sid AND i.offset >= c.low AND i.offset < c.high AND i.id <= {cut}
    CROSS JOIN wal_log AS w ON w.id = i.id
    UNION ALL
    SELECT c.own, c.stream, r.offset, w.payload
    FROM chain AS c CROSS JOIN wal_recent AS r
    ON r.sid = c.sid AND r.offset >= c.low AND r.offset < c.high AND r.id <= {cut}
    CROSS JOIN wal_log AS w ON w.id = r.id
    ORDER BY own, offset
)

-- name: changes_whole
-- True if all of those messages are in the file; otherwise some are only in published segments.
WITH RECURSIVE chain (sid, low, high) AS (
    SELECT sid, coalesce(fork_offset, 0), next_offset FROM streams
    WHERE sid > ?1 AND sid <= ?2 AND (stream_flags & 1) = 0 AND content_type LIKE 'application/json%' AND {conditions}
    UNION ALL
    SELECT p.sid, coalesce(p.fork_offset, 0), min(c.low, c.high)
    FROM chain AS c JOIN streams AS m ON m.sid = c.sid JOIN streams AS p ON p.sid = m.forked_from
)
SELECT NOT EXISTS (
    SELECT 1 FROM chain AS c JOIN streams AS s ON s.sid = c.sid
    WHERE max(c.low, s.first_offset) < c.high AND max(c.low, s.first_offset) <= s.uploaded_through
)

-- name: ends
-- For each selected stream: its incarnation and key, its first offset here, and its next offset.
SELECT incarnation, sid, max(first_offset, coalesce(fork_offset, 0), uploaded_through + 1), next_offset FROM streams
WHERE (stream_flags & 1) = 0 AND (?1 IS NULL OR stream GLOB ?1)

-- name: ranges
-- Records of many streams: ?1 is a list of [sid, first offset, end].
SELECT {samples} UNION ALL SELECT {columns} FROM (
    SELECT
        w.id AS position, s.stream AS stream, w.offset AS offset,
        strftime('%Y-%m-%dT%H:%M:%S', w.ts_ms / 1000, 'unixepoch') || printf('.%03dZ', w.ts_ms % 1000) AS time,
        w.payload AS payload,
        CASE
            WHEN s.content_type LIKE 'application/json%' OR s.content_type LIKE 'text/%' THEN CAST(w.payload AS TEXT)
        END AS text,
        w.payload_len AS size, CAST(w.routing_key AS TEXT) AS routing_key, CAST(w.headers AS TEXT) AS headers, s.content_type AS content_type
    FROM json_each(?1) AS j CROSS JOIN wal_records AS w
    ON w.sid = j.value ->> 0 AND w.offset >= j.value ->> 1 AND w.offset < j.value ->> 2
    CROSS JOIN streams AS s ON s.sid = w.sid
)

-- name: ranges_whole
-- True if the requested records of existing streams are still here; a deleted stream has no more records.
SELECT NOT EXISTS (
    SELECT 1 FROM json_each(?1) AS j JOIN streams AS s ON s.sid = j.value ->> 0
    WHERE max(s.first_offset, s.uploaded_through + 1) > j.value ->> 1
)

-- name: selected
-- Wraps a query to select columns and rows.
SELECT {columns} FROM ({query}) WHERE {conditions}
