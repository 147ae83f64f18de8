-- Fragments of the statement that finds the matches of a pattern in an app; {n} is its number.

-- name: parents
-- All parents from the id ?1 on that are here since ?2 or before.
SELECT id FROM app_{n}_parent WHERE id >= ?1 AND object_id = id AND global_seq <= ?2 ORDER BY id

-- name: parents_of_type
SELECT id FROM app_{n}_parent WHERE type_id = ?3 AND id >= ?1 AND object_id = id AND global_seq <= ?2 ORDER BY id

-- name: holders
-- The parents from the id ?1 on that have an attribute with a value in one of some ranges at ?2.
SELECT DISTINCT target FROM ({ranges}) ORDER BY target

-- name: holders_now
SELECT target FROM value_now WHERE app_id = {n} AND kind = 2 AND type_id = {type} AND value >= {low} AND value <= {high}
  AND target >= ?1 AND from_seq <= ?2

-- name: holders_past
SELECT target FROM value_past WHERE app_id = {n} AND kind = 2 AND type_id = {type} AND value >= {low} AND value <= {high}
  AND target >= ?1 AND from_seq <= ?2 AND to_seq > ?2

-- name: match
-- The first parents are ?1. Tables are read in this order, from one object to the next.
SELECT {columns} FROM json_each(?1) AS first {joins}
WHERE ({columns}) > ({after}) {conditions}
ORDER BY {columns} LIMIT {limit}

-- name: is_type
CROSS JOIN app_{n}_parent AS {alias}

-- name: is_type_where
AND {alias}.id = {node} AND {alias}.type_id = {type}

-- name: has_value
-- The plus signs keep SQLite from walking all values in the ranges.
AND EXISTS (
    SELECT 1 FROM value_now AS v
    WHERE v.app_id = {n} AND v.kind = 2 AND v.target_kind = 0 AND v.target = {node} AND v.type_id = {type} {ranges}
)

-- name: edge_out
-- An edge as it is now. The plus keeps SQLite from walking all edges of the app by their destinations.
AND {alias}.app_id = {n} AND {alias}.src = {near} AND +{alias}.dst_kind = 0 AND {alias}.from_seq <= ?2 {types}

-- name: edge_in
AND {alias}.app_id = {n} AND {alias}.dst_kind = 0 AND {alias}.dst = {near} AND {alias}.from_seq <= ?2 {types}

-- name: edge_between
AND {alias}.app_id = {n} AND {alias}.src = {near} AND {alias}.dst_kind = 0 AND {alias}.dst = {far}
  AND {alias}.from_seq <= ?2 {types}

-- name: hops_out
SELECT e.dst AS far, {what} FROM {table} AS e
WHERE e.app_id = {n} AND e.src = {near} AND +e.dst_kind = 0 AND e.from_seq <= ?2 {until} {types} {bound}

-- name: hops_in
SELECT e.src AS far, {what} FROM {table} AS e
WHERE e.app_id = {n} AND e.dst_kind = 0 AND e.dst = {near} AND e.from_seq <= ?2 {until} {types} {bound}

-- name: edges
-- The edges of one object, as pairs of the other end and the edge. The list is made for each row before it.
CROSS JOIN json_each((SELECT json_group_array(json_array(far, object_id)) FROM ({hops}))) AS {alias}

-- name: reach
-- The objects within {hops} edges of one object. If there are more than {most}, the text is no JSON: an error.
CROSS JOIN json_each((
    WITH RECURSIVE reach (far, depth) AS (
        SELECT {near}, 0 UNION {steps} LIMIT {most} + 1
    )
    SELECT iif((SELECT count(*) FROM reach) > {most}, 'too many', (
        SELECT json_group_array(far) FROM (SELECT DISTINCT far FROM reach WHERE far <> {near})
    ))
)) AS {alias}
