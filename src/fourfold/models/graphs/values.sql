-- Statements about the values of attributes and ratings of an app; {n} is its number, {kind} the table, {bit} its bit.

-- name: between_now
-- Objects of the type ?1 with a value from ?2 to ?3, in the order of values and ids, after the id ?4 where the value is
-- ?2, that have it since ?5 or before.
SELECT value, object_id FROM value_now
WHERE app_id = {n} AND kind = {bit} AND type_id = ?1 AND value >= ?2 AND value <= ?3 AND (value > ?2 OR object_id > ?4)
  AND from_seq <= ?5 ORDER BY value, object_id

-- name: between_past
SELECT value, object_id FROM value_past
WHERE app_id = {n} AND kind = {bit} AND type_id = ?1 AND value >= ?2 AND value <= ?3 AND (value > ?2 OR object_id > ?4)
  AND from_seq <= ?5 AND to_seq > ?5 ORDER BY value, object_id

-- name: newest_of
-- The newest versions of some objects up to a row, in their order.
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN app_{n}_{kind} AS r WHERE r.id = {newest} AND +r.id <= ?2

-- name: at_seq
-- The values of the type ?1 at the seq ?2, without those of the hidden parents ?3 and attributes ?4, of the target ?5
-- of the kind ?6 if one is given.
SELECT target_kind, target, value FROM (
    SELECT target_kind, target, object_id, value FROM value_now
    WHERE app_id = {n} AND kind = {bit} AND type_id = ?1 AND from_seq <= ?2 AND (?5 IS NULL OR target = ?5 AND target_kind = ?6)
    UNION ALL
    SELECT target_kind, target, object_id, value FROM value_past
    WHERE app_id = {n} AND kind = {bit} AND type_id = ?1 AND from_seq <= ?2 AND to_seq > ?2
      AND (?5 IS NULL OR target = ?5 AND target_kind = ?6)
)
WHERE NOT (target_kind = 0 AND target IN (SELECT value FROM json_each(?3)))
  AND NOT (target_kind = 1 AND target IN (SELECT value FROM json_each(?4)))
  AND NOT ({bit} = 2 AND object_id IN (SELECT value FROM json_each(?4)))

-- name: aggregate
SELECT count(*), count(number), sum(number), avg(number), min(number), max(number)
FROM (SELECT iif(typeof(value) = 'real', value, NULL) AS number FROM ({at_seq}))

-- name: top
-- Parents by their numbers; ?7 are types of parents if they are given, ?8 the order, ?9 the limit.
SELECT target, count(*), sum(value), avg(value) FROM ({at_seq})
WHERE target_kind = 0 AND typeof(value) = 'real' AND (?7 IS NULL OR EXISTS (
    SELECT 1 FROM app_{n}_parent AS p WHERE p.id = target AND p.type_id IN (SELECT value FROM json_each(?7))
))
GROUP BY target ORDER BY iif(?8 = 'average', avg(value), iif(?8 = 'sum', sum(value), count(*))) DESC, target LIMIT ?9

-- name: suppressed_targets
-- Objects that ratings of the type ?1 may hide at the seq ?2.
SELECT DISTINCT target_kind, target FROM value_now WHERE app_id = {n} AND kind = 8 AND type_id = ?1

-- name: attrs_of
-- Attributes of some parents.
SELECT object_id FROM json_each(?1) AS parent CROSS JOIN value_now AS v
WHERE v.app_id = {n} AND v.kind = 2 AND v.target_kind = 0 AND v.target = parent.value
