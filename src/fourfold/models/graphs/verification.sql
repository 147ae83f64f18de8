-- What must hold in a graph database. Every query gives the rows that break a rule; {n} is an app, {kind} a table.

-- name: numbers_behind_the_counter
-- An envelope that is newer than the counter.
SELECT global_seq, app_id FROM envelopes WHERE global_seq > (SELECT seq FROM global_seq) OR global_seq < 1 LIMIT ?1

-- name: envelopes_of_no_app
SELECT global_seq, app_id FROM envelopes WHERE app_id NOT IN (SELECT app_id FROM apps) LIMIT ?1

-- name: wrong_usage
-- What an app holds is what its tables hold: ?1 the app, ?2 its rows, ?3 its bytes.
SELECT rows, bytes FROM app_usage WHERE app_id = ?1 AND (rows <> ?2 OR bytes <> ?3)

-- name: held
-- How many rows and bytes a table holds.
SELECT count(*), coalesce(sum({bytes}), 0) FROM app_{n}_{kind}

-- name: rows_without_envelope
SELECT id, global_seq FROM app_{n}_{kind} AS r
WHERE NOT EXISTS (
    SELECT 1 FROM envelopes AS e WHERE e.global_seq = r.global_seq AND e.app_id = {n} AND (e.kinds & {bit}) <> 0
      AND (r.sync_flags & ~e.sync_flags) = 0
) LIMIT ?1

-- name: envelopes_without_rows
SELECT global_seq, app_id FROM envelopes AS e WHERE e.app_id = {n} AND (e.kinds & {bit}) <> 0
  AND e.global_seq NOT IN (SELECT global_seq FROM app_{n}_{kind}) LIMIT ?1

-- name: out_of_order
-- Ids and numbers grow together.
SELECT id, global_seq FROM (
    SELECT id, global_seq, lag(global_seq) OVER (ORDER BY id) AS before FROM app_{n}_{kind}
) WHERE global_seq < before LIMIT ?1

-- name: unknown_types
SELECT id, type_id FROM app_{n}_{kind}
WHERE type_id NOT IN (SELECT id FROM app_{n}_type WHERE kind = '{kind}') LIMIT ?1

-- name: objects_without_first_row
-- Every version belongs to an object whose first row is there, is older, and is of the same owner and type.
SELECT r.id, r.object_id FROM app_{n}_{kind} AS r LEFT JOIN app_{n}_{kind} AS f ON f.id = r.object_id
WHERE f.id IS NULL OR f.object_id <> f.id OR f.id > r.id OR f.owner_identity <> r.owner_identity OR f.type_id <> r.type_id
LIMIT ?1

-- name: own_rows_elsewhere
-- A row of this node has the number under which it was written.
SELECT id, global_seq FROM app_{n}_{kind} WHERE origin = '' AND origin_seq <> global_seq LIMIT ?1

-- name: versions_twice
SELECT min(id), object_id FROM app_{n}_{kind} GROUP BY object_id, version, origin HAVING count(*) > 1 LIMIT ?1

-- name: wrong_leads
-- A row leads when no row before it is a newer version; ?2 is the name of this node.
SELECT id, object_id FROM (
    SELECT id, object_id, leads, rank, max(rank) OVER (
        PARTITION BY object_id ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS newest
    FROM (
        SELECT *, printf('%020d', version) || iif(origin = '', ?2, origin) AS rank FROM app_{n}_{kind}
        WHERE object_id IN (SELECT object_id FROM app_{n}_{kind} WHERE id <> object_id OR leads <> 1)
    )
) WHERE leads <> (newest IS NULL OR newest <= rank) LIMIT ?1

-- name: dangling
-- A pointer that leads to no object: {pointer} to {target}.
SELECT id, {pointer} FROM app_{n}_{kind} AS r WHERE r.{pointer} IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM app_{n}_{target} AS t WHERE t.id = r.{pointer} AND t.object_id = t.id
) LIMIT ?1
