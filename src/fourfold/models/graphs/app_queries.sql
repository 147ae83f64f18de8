-- Statements about one table of one app: {n} is the app, {kind} the table, {columns} its columns in the order of the
-- records. Ids and global_seqs grow together, so a range of numbers is a range of ids, and the order of ids is the
-- order of the log.

-- name: first_after
-- The first row after a seq.
SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1

-- name: last_until
-- The last row up to a seq: the one before the first of the next seq. Null in an empty table.
SELECT coalesce(
    (
        SELECT first_id - 1 FROM seq_row
        WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
    ),
    (SELECT max(id) FROM app_{n}_{kind})
)

-- name: greatest_seq
SELECT coalesce((SELECT global_seq FROM app_{n}_{kind} ORDER BY id DESC LIMIT 1), 0)

-- name: count
SELECT count(*) FROM app_{n}_{kind}

-- name: next_id
SELECT coalesce(max(id), 0) + 1 FROM app_{n}_{kind}

-- name: range_of_ids
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.id > ?1 AND r.id <= ?2 {current} ORDER BY r.id LIMIT ?3

-- name: of_type
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.type_id = ?4 AND r.id > ?1 AND r.id <= ?2 {current} ORDER BY r.id LIMIT ?3

-- name: of_owner
SELECT {columns} FROM app_{n}_{kind} AS r
WHERE r.owner_identity = ?4 AND r.id > ?1 AND r.id <= ?2 {current} ORDER BY r.id LIMIT ?3

-- name: of_type_and_owner
SELECT {columns} FROM app_{n}_{kind} AS r
WHERE r.type_id = ?4 AND r.owner_identity = ?5 AND r.id > ?1 AND r.id <= ?2 {current} ORDER BY r.id LIMIT ?3

-- name: pointing_at
-- Rows that point at one of several objects, in the order of the list. The plus keeps SQLite from walking the ids.
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN app_{n}_{kind} AS r
WHERE r.{pointer} = wanted.value AND +r.id > ?2 AND +r.id <= ?3 {current}

-- name: pointing_at_of_type
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN json_each(?4) AS type CROSS JOIN app_{n}_{kind} AS r
WHERE r.{pointer} = wanted.value AND r.type_id = type.value AND +r.id > ?2 AND +r.id <= ?3 {current}

-- name: derived_at
-- The same of edges and ratings, which a derived table {source} finds; a row may come several times.
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN {source} AS o CROSS JOIN app_{n}_{kind} AS r
WHERE o.app_id = {n} AND {ends} AND r.id IN ({rows})
  AND r.{pointer} = wanted.value AND +r.id > ?2 AND +r.id <= ?3 {current}

-- name: derived_at_of_type
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN json_each(?4) AS type CROSS JOIN {source} AS o CROSS JOIN app_{n}_{kind} AS r
WHERE o.app_id = {n} AND {ends} AND {typed}.type_id = type.value AND r.id IN ({rows})
  AND r.{pointer} = wanted.value AND +r.id > ?2 AND +r.id <= ?3 {current}

-- name: rows_at
SELECT o.object_id FROM {source} AS o WHERE o.app_id = {n} AND {ends}
UNION ALL SELECT w.id FROM {source} AS o CROSS JOIN row_version AS w
WHERE o.app_id = {n} AND {ends} AND w.app_id = {n} AND w.kind = {bit} AND w.object_id = o.object_id

-- name: rows_of_object
SELECT {object} UNION ALL SELECT w.id FROM row_version AS w
WHERE w.app_id = {n} AND w.kind = {bit} AND w.object_id = {object}

-- name: adjacent
-- The newest versions, up to the row ?2, of edges that are at one object, by type, so that a limit ends the walk.
SELECT {columns} FROM edge_now AS e CROSS JOIN app_{n}_edge AS r
WHERE e.app_id = {n} AND {ends} AND e.from_seq <= ?3 AND r.id = {newest} ORDER BY {order}

-- name: adjacent_past
-- Of edges that are elsewhere now.
SELECT {columns} FROM edge_past AS e CROSS JOIN app_{n}_edge AS r
WHERE e.app_id = {n} AND {ends} AND e.to_seq > ?3 AND e.from_seq <= ?3 AND r.id = {newest}

-- name: written_under
-- Own rows of a seq, in their order.
SELECT r.position, r.object_id, r.version, r.type_id, r.owner_identity FROM app_{n}_{kind} AS r
WHERE r.id >= (SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq = ?1)
  AND r.id < coalesce((
    SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
  ), 9223372036854775807) AND r.origin = ''

-- name: held
-- The newest versions of what belongs to several objects, each found by its id: versions cost nothing.
SELECT {columns} FROM json_each(?1) AS wanted CROSS JOIN value_now AS v CROSS JOIN app_{n}_{kind} AS r
WHERE v.app_id = {n} AND v.kind = {bit} AND v.target_kind = {target_kind} AND v.target = wanted.value
  AND (?4 IS NULL OR v.type_id IN (SELECT value FROM json_each(?4)))
  AND r.id = {newest} AND +r.id <= ?3 AND +r.id > ?2

-- name: held_by_one
-- The same of one object, by type and then in the order of the objects, so that a limit ends the walk.
SELECT {columns} FROM value_now AS v CROSS JOIN app_{n}_{kind} AS r
WHERE v.app_id = {n} AND v.kind = {bit} AND v.target_kind = {target_kind} AND v.target = ?1
  AND r.id = {newest} AND +r.id <= ?2 ORDER BY v.type_id, v.object_id

-- name: only_current
-- The last row up to the same bound that was the newest of its object when it came.
AND r.leads = 1 AND NOT EXISTS (
    SELECT 1 FROM row_version AS q WHERE q.app_id = {n} AND q.kind = {bit} AND q.object_id = r.object_id AND q.leads = 1
      AND q.id > r.id AND q.id <= {bound}
)

-- name: newest_id
-- The row of the newest version of an object up to a row. It is the first row if that is later.
coalesce((
    SELECT q.id FROM row_version AS q WHERE q.app_id = {n} AND q.kind = {bit} AND q.object_id = {object} AND q.leads = 1
      AND q.id <= {until} ORDER BY q.id DESC LIMIT 1
), {object})

-- name: scattered
-- Rows with one of the flags ?3 after a number and up to another, where few have one. Those of one number are a range of
-- ids.
SELECT {columns} FROM envelopes AS e CROSS JOIN seq_row AS s CROSS JOIN app_{n}_{kind} AS r
WHERE e.global_seq > ?1 AND e.global_seq <= ?2 AND e.app_id = {n} AND (e.sync_flags & ?3) <> 0
  AND s.app_id = {n} AND s.kind = {bit} AND s.global_seq = e.global_seq AND r.id >= s.first_id AND r.id < coalesce((
    SELECT t.first_id FROM seq_row AS t
    WHERE t.app_id = {n} AND t.kind = {bit} AND t.global_seq > e.global_seq ORDER BY t.global_seq LIMIT 1
  ), 9223372036854775807) AND (r.sync_flags & ?3) <> 0
ORDER BY e.global_seq LIMIT ?4

-- name: range_with_flags
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.id > ?1 AND r.id <= ?2 AND (r.sync_flags & ?3) <> 0 ORDER BY r.id LIMIT ?4

-- name: pending
-- In the order of the log; the reader stops between two seqs.
SELECT {columns} FROM app_{n}_{kind} AS r
WHERE r.id >= coalesce((
    SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
  ), 9223372036854775807) AND (r.sync_flags & ?2) <> 0 ORDER BY r.id

-- name: newest
-- The newest version of an object ?1 up to a row ?2.
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.id = {newest} AND r.object_id = ?1 AND +r.id <= ?2

-- name: versions
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.id IN ({rows}) AND r.object_id = ?1

-- name: history
-- Later versions of an object that did or did not lead, in the order of the log.
SELECT {columns} FROM row_version AS v CROSS JOIN app_{n}_{kind} AS r
WHERE v.app_id = {n} AND v.kind = {bit} AND v.object_id = ?1 AND v.leads = ?2 AND v.id > ?3 AND v.id <= ?4
  AND r.id = v.id ORDER BY v.id

-- name: first_version
SELECT {columns} FROM app_{n}_{kind} AS r WHERE r.id = ?1 AND r.object_id = ?1 AND +r.id > ?2 AND +r.id <= ?3

-- name: flags_of_object
-- An object is known by its first row.
SELECT sync_flags FROM app_{n}_{kind} WHERE id = ?1 AND object_id = ?1

-- name: flags_of_objects
-- The same of many; an id that is no object has no flags.
SELECT wanted.value, r.sync_flags FROM json_each(?1) AS wanted
LEFT JOIN app_{n}_{kind} AS r ON r.id = wanted.value AND r.object_id = r.id

-- name: owners
-- Who owns some objects; all versions of one have the same owner.
SELECT r.id, r.owner_identity FROM json_each(?1) AS wanted CROSS JOIN app_{n}_{kind} AS r WHERE r.id = wanted.value

-- name: own_row
-- A row that this node wrote itself, by its place in the log.
SELECT r.id FROM app_{n}_{kind} AS r
WHERE r.id >= (SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq = ?1)
  AND r.id < coalesce((
    SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
  ), 9223372036854775807) AND r.position = ?2 AND r.origin = ''

-- name: rows_of_version
-- Rows of one version of an object: several, if it was written on several nodes at once.
SELECT r.id FROM app_{n}_{kind} AS r WHERE r.id IN ({rows}) AND r.object_id = ?1 AND r.version = ?2

-- name: set_flags
UPDATE app_{n}_{kind} SET sync_flags = ?1 WHERE id IN (SELECT value FROM json_each(?2))

-- name: add_flags
UPDATE app_{n}_{kind} SET sync_flags = sync_flags | ?1 WHERE id IN (SELECT value FROM json_each(?2))

-- name: queue_shared
-- Own rows that are shared late become entries at the tail of the logs of their domains.
INSERT OR IGNORE INTO sync_queue (domain, owner, global_seq, position, app_id, kind, local_id)
SELECT d.domain, r.owner_identity, r.global_seq, r.position, {n}, '{kind}', r.id
FROM json_each(?1) AS wanted CROSS JOIN app_{n}_{kind} AS r CROSS JOIN sync_domains AS d
WHERE r.id = wanted.value AND r.origin = '' AND (r.sync_flags & d.mask) <> 0

-- name: seqs_of_rows
SELECT global_seq FROM app_{n}_{kind} WHERE id IN (SELECT value FROM json_each(?1))

-- name: flags_into_envelopes
-- The flags of a number are those of all its rows.
UPDATE envelopes SET sync_flags = sync_flags | ?1
WHERE app_id = {n} AND global_seq IN (
    SELECT global_seq FROM app_{n}_{kind} WHERE id IN (SELECT value FROM json_each(?2))
)
