-- Statements about `edge_now` and `edge_past`, which are derived from the edges of an app; {n} is its number.

-- name: add_first
-- New edges among the rows ?1 to ?2.
INSERT INTO edge_now (app_id, src, type_id, dst_kind, dst, object_id, from_seq)
SELECT {n}, src_parent_id, type_id, dst_attr_id IS NOT NULL, coalesce(dst_attr_id, dst_parent_id), object_id, global_seq
FROM app_{n}_edge WHERE id BETWEEN ?1 AND ?2 AND object_id = id

-- name: later_versions
-- Versions of older edges among the rows ?1 to ?2.
SELECT id, object_id FROM app_{n}_edge WHERE id BETWEEN ?1 AND ?2 AND object_id <> id AND leads = 1 ORDER BY id

-- name: leading
-- The newest version of an edge up to a row.
SELECT src_parent_id, type_id, dst_attr_id IS NOT NULL, coalesce(dst_attr_id, dst_parent_id), object_id, global_seq
FROM app_{n}_edge WHERE object_id = ?1 AND leads = 1 AND id <= ?2 ORDER BY id DESC LIMIT 1

-- name: drop_now
DELETE FROM edge_now
WHERE app_id = {n} AND src = ?1 AND type_id = ?2 AND dst_kind = ?3 AND dst = ?4 AND object_id = ?5 RETURNING from_seq

-- name: add_now
INSERT INTO edge_now (app_id, src, type_id, dst_kind, dst, object_id, from_seq) VALUES ({n}, ?1, ?2, ?3, ?4, ?5, ?6)

-- name: add_past
INSERT INTO edge_past (app_id, src, type_id, dst_kind, dst, object_id, from_seq, to_seq)
VALUES ({n}, ?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: drop_past
-- The interval that ended with the seq ?6, if the edge led to the same object.
DELETE FROM edge_past WHERE app_id = {n} AND src = ?1 AND to_seq = ?6 AND object_id = ?5 AND type_id = ?2
  AND dst_kind = ?3 AND dst = ?4 RETURNING from_seq

-- name: clear
DELETE FROM edge_now;
DELETE FROM edge_past;

-- name: intervals
-- The intervals that the log gives; the last one of each edge has no `to_seq`. A version that another one of the same
-- seq replaced was never visible, and versions in a row with one destination are one interval.
WITH versions AS (
    SELECT id, src_parent_id AS src, type_id, dst_attr_id IS NOT NULL AS dst_kind,
           coalesce(dst_attr_id, dst_parent_id) AS dst, object_id, global_seq AS from_seq,
           lead(global_seq) OVER (PARTITION BY object_id ORDER BY id) AS replaced
    FROM app_{n}_edge WHERE leads = 1
), visible AS (
    SELECT *, lag(dst_kind) OVER same AS previous_kind, lag(dst) OVER same AS previous
    FROM versions WHERE replaced IS NULL OR replaced > from_seq WINDOW same AS (PARTITION BY object_id ORDER BY id)
)
SELECT {n} AS app_id, src, type_id, dst_kind, dst, object_id, from_seq,
       lead(from_seq) OVER (PARTITION BY object_id ORDER BY id) AS to_seq
FROM visible WHERE previous IS NOT dst OR previous_kind IS NOT dst_kind

-- name: fill
INSERT INTO edge_past SELECT * FROM ({intervals}) WHERE to_seq IS NOT NULL;
INSERT INTO edge_now SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq FROM ({intervals})
WHERE to_seq IS NULL;

-- name: missing
-- Intervals of the log that the derived tables lack.
SELECT object_id, from_seq FROM (
    SELECT * FROM ({intervals})
    EXCEPT SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq, to_seq FROM edge_past WHERE app_id = {n}
    EXCEPT SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq, NULL FROM edge_now WHERE app_id = {n}
) LIMIT ?1

-- name: extra
-- Intervals of the derived tables that the log does not give.
SELECT object_id, from_seq FROM (
    SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq, to_seq FROM edge_past WHERE app_id = {n}
    UNION ALL SELECT app_id, src, type_id, dst_kind, dst, object_id, from_seq, NULL FROM edge_now WHERE app_id = {n}
    EXCEPT SELECT * FROM ({intervals})
) LIMIT ?1

-- name: of_no_app
SELECT DISTINCT app_id FROM edge_now WHERE app_id NOT IN (SELECT app_id FROM apps)
UNION SELECT DISTINCT app_id FROM edge_past WHERE app_id NOT IN (SELECT app_id FROM apps)

-- name: apps
SELECT app_id FROM apps ORDER BY app_id

-- name: out_now
-- Edges from the parents ?1 to parents, of the types ?3, that lead there since ?2 or before. The plus keeps SQLite from
-- walking all edges of the app by their destinations.
SELECT e.src, e.dst, e.object_id FROM json_each(?1) AS node CROSS JOIN edge_now AS e
WHERE e.app_id = {n} AND e.src = node.value AND +e.dst_kind = 0 AND e.from_seq <= ?2
  AND (?3 IS NULL OR e.type_id IN (SELECT value FROM json_each(?3)))

-- name: in_now
-- Edges to the parents ?1; the first column is the end that was given.
SELECT e.dst, e.src, e.object_id FROM json_each(?1) AS node CROSS JOIN edge_now AS e
WHERE e.app_id = {n} AND e.dst_kind = 0 AND e.dst = node.value AND e.from_seq <= ?2
  AND (?3 IS NULL OR e.type_id IN (SELECT value FROM json_each(?3)))

-- name: out_past
SELECT e.src, e.dst, e.object_id FROM json_each(?1) AS node CROSS JOIN edge_past AS e
WHERE e.app_id = {n} AND e.src = node.value AND e.to_seq > ?2 AND +e.dst_kind = 0 AND e.from_seq <= ?2
  AND (?3 IS NULL OR e.type_id IN (SELECT value FROM json_each(?3)))

-- name: in_past
SELECT e.dst, e.src, e.object_id FROM json_each(?1) AS node CROSS JOIN edge_past AS e
WHERE e.app_id = {n} AND e.dst_kind = 0 AND e.dst = node.value AND e.to_seq > ?2 AND e.from_seq <= ?2
  AND (?3 IS NULL OR e.type_id IN (SELECT value FROM json_each(?3)))

-- name: exists_now
-- One edge from ?1 to ?2 at ?3 of the types ?4. Every type is one seek, also where ?1 has many edges.
SELECT 1 FROM json_each(?4) AS type CROSS JOIN edge_now AS e
WHERE e.app_id = {n} AND e.src = ?1 AND e.type_id = type.value AND e.dst_kind = 0 AND e.dst = ?2 AND e.from_seq <= ?3
LIMIT 1

-- name: exists_past
SELECT 1 FROM edge_past AS e
WHERE e.app_id = {n} AND e.dst_kind = 0 AND e.dst = ?2 AND e.to_seq > ?3 AND +e.src = ?1 AND e.from_seq <= ?3
  AND e.type_id IN (SELECT value FROM json_each(?4)) LIMIT 1
