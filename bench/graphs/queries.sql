-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: edges_after
-- Edges by their ends, in the order of the log.
SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq FROM edge_now WHERE from_seq > ?1 ORDER BY object_id

-- name: values_after
-- Attributes and ratings by their values, in the order of the log.
SELECT app_id, kind, target_kind, target, type_id, object_id, value, from_seq FROM value_now WHERE from_seq > ?1 ORDER BY object_id

-- name: seqs_after
-- The first row of each seq, by table.
SELECT app_id, kind, first_id, global_seq FROM seq_row WHERE global_seq > ?1 ORDER BY kind, global_seq

-- name: envelopes_after
SELECT global_seq, app_id, kinds, sync_flags, created_at, trace_id FROM envelopes WHERE global_seq > ? ORDER BY global_seq

-- name: newest_seq
SELECT seq FROM global_seq

-- A bare SELECT of the rows of a table: {table} with its {columns}, in pages.

-- name: page_by_number
-- As a reader asks who knows up to which number it has read.
SELECT {columns} FROM {table} WHERE id >= (
    SELECT first_id FROM seq_row WHERE app_id = 1 AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
) AND id < coalesce((
    SELECT first_id FROM seq_row WHERE app_id = 1 AND kind = {bit} AND global_seq > ?2 ORDER BY global_seq LIMIT 1
), 9223372036854775807) ORDER BY id

-- name: page_by_id
-- The fastest way through a table that there is.
SELECT {columns} FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: rows_after
-- The rows of {table} behind a number.
SELECT {columns} FROM {table} WHERE global_seq > ?1 ORDER BY id

-- The proof that two files hold the same rows, whoever wrote them: times are each writer's own.

-- name: every_row
SELECT {columns} FROM {table} ORDER BY id

-- A large database, built without its indexes: ?1 numbers, each a parent, three attributes and an edge.

-- name: fill_parents
WITH RECURSIVE n(i) AS (SELECT ?2 + 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2 + ?1)
INSERT INTO app_1_parent
SELECT i, 1, 1, ?3 + i - ?2, 0, '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', i, 1, '', ?3 + i - ?2, 0, 1 FROM n

-- name: fill_attrs
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3 * ?1 - 1)
INSERT INTO app_1_attr
SELECT i + 1, ?2 + 1 + i / 3, 2, 1, ?3 + 1 + i / 3, 0, printf('A message of about fifty bytes, number %012d', i), NULL, NULL, NULL,
    '2026-01-01T00:00:00+00:00', i + 1, 1, '', ?3 + 1 + i / 3, 1 + i % 3, 1 FROM n

-- name: fill_edges
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO app_1_edge
SELECT i, ?2 + i, i % ?2 + 1, NULL, 3, 1, ?3 + i, 0, '2026-01-01T00:00:00+00:00', i, 1, '', ?3 + i, 4, 1 FROM n

-- name: fill_envelopes
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO envelopes SELECT ?3 + i, 1, 7, 0, '2026-01-01T00:00:00+00:00', NULL FROM n

-- name: fill_usage
UPDATE app_usage SET rows = rows + 5 * ?1,
    bytes = bytes + (SELECT coalesce(sum(octet_length(value_text)), 0) FROM app_1_attr) WHERE app_id = 1

-- name: fill_seq
UPDATE global_seq SET seq = ?1

-- name: indexes_of_app
SELECT name FROM sqlite_schema WHERE type = 'index' AND name GLOB 'app_1_*'
