-- Rules of types of an app; {n} is its number. A check is about the rows ?1 to ?2 of the type ?3 and returns one object that
-- breaks the rule.

-- name: rules
SELECT t.id, t.kind, t.type_key, r.rule FROM type_rule AS r JOIN app_{n}_type AS t ON t.id = r.type_id
WHERE r.app_id = {n} ORDER BY t.id

-- name: put
INSERT INTO type_rule (app_id, type_id, rule) VALUES ({n}, ?1, ?2)
ON CONFLICT (app_id, type_id) DO UPDATE SET rule = excluded.rule

-- name: drop
DELETE FROM type_rule WHERE app_id = {n} AND type_id = ?1

-- name: wrong_end
-- {pointer} is not a parent of one of the types ?4.
SELECT r.object_id FROM app_{n}_{kind} AS r
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND NOT EXISTS (
    SELECT 1 FROM app_{n}_parent AS p WHERE p.id = r.{pointer} AND p.type_id IN (SELECT value FROM json_each(?4))
) LIMIT 1

-- name: wrong_value
SELECT r.object_id FROM app_{n}_{kind} AS r
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND r.{column} IS NULL LIMIT 1

-- name: too_many_attr
-- More than ?4 of the type at one parent.
SELECT r.object_id FROM app_{n}_attr AS r
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND (
    SELECT count(*) FROM (
        SELECT 1 FROM value_now AS v WHERE v.app_id = {n} AND v.kind = 2 AND v.target_kind = 0 AND v.target = r.parent_id
          AND v.type_id = ?3 LIMIT ?4 + 1
    )
) > ?4 LIMIT 1

-- name: too_many_edge
-- More than ?4 of the type from one parent.
SELECT r.object_id FROM app_{n}_edge AS r
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND (
    SELECT count(*) FROM (
        SELECT 1 FROM edge_now AS e WHERE e.app_id = {n} AND e.src = r.src_parent_id AND e.type_id = ?3 LIMIT ?4 + 1
    )
) > ?4 LIMIT 1

-- name: too_many_in
-- More than ?4 of the type to one parent.
SELECT r.object_id FROM app_{n}_edge AS r
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND r.dst_parent_id IS NOT NULL AND (
    SELECT count(*) FROM (
        SELECT 1 FROM edge_now AS e
        WHERE e.app_id = {n} AND e.dst_kind = 0 AND e.dst = r.dst_parent_id AND e.type_id = ?3 LIMIT ?4 + 1
    )
) > ?4 LIMIT 1

-- name: not_unique
-- Another attribute of the type has the same text or number. `value_now` has the beginning of a text.
SELECT r.object_id FROM app_{n}_attr AS r JOIN value_now AS v ON v.app_id = {n} AND v.kind = 2 AND v.type_id = ?3
  AND v.value = coalesce(substr(r.value_text, 1, {chars}), r.value_number) AND v.object_id <> r.object_id
JOIN app_{n}_attr AS o ON o.id = {newest_of_v}
WHERE r.id BETWEEN ?1 AND ?2 AND r.type_id = ?3 AND o.value_text IS r.value_text AND o.value_number IS r.value_number
  AND r.id = {newest_of_r} LIMIT 1

-- name: lacking
-- A parent, of one of the types ?4 if they are given, without an attribute of the type ?3.
SELECT p.object_id FROM app_{n}_parent AS p
WHERE p.id BETWEEN ?1 AND ?2 AND p.object_id = p.id AND (?4 IS NULL OR p.type_id IN (SELECT value FROM json_each(?4)))
  AND NOT EXISTS (
    SELECT 1 FROM value_now AS v
    WHERE v.app_id = {n} AND v.kind = 2 AND v.target_kind = 0 AND v.target = p.id AND v.type_id = ?3
) LIMIT 1
