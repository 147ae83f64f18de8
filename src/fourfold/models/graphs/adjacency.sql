-- Walks along the edges of an app; {n} is its number.

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
