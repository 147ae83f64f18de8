-- The tables of graphs. A query with {n} reads the tables of the app with that number; it is repeated for each selected
-- app, many apps in one statement.
--
-- ?1 and ?2 bound the seq of a row: after ?1, until ?2.

-- name: scan
-- Wraps a query: a sample row that fixes the type of every column, then the selected rows.
SELECT {samples} {parts}

-- name: part
UNION ALL SELECT {columns} FROM ({query}) WHERE {conditions}

-- name: horizon
-- None: see whole_after.
SELECT 0

-- name: whole_after
-- Always true: rows are only added.
SELECT ?1 >= 0

-- name: node
-- The id of the node of the file.
SELECT value FROM kernel_meta WHERE key = 'database_id'

-- name: collected
-- Always false: see whole_after.
SELECT 0

-- name: first_after
-- The first seq assigned after a time. Times are ISO 8601 texts in UTC, which sort correctly.
SELECT global_seq FROM envelopes WHERE created_at > ?1 ORDER BY global_seq LIMIT 1

-- name: all_apps
SELECT app_id, slug FROM apps ORDER BY app_id

-- name: apps_between
-- The apps that wrote after a seq until another.
SELECT DISTINCT e.app_id, a.slug FROM envelopes AS e JOIN apps AS a USING (app_id)
WHERE e.global_seq > ?1 AND e.global_seq <= ?2 ORDER BY e.app_id

-- name: numbers
-- Seqs after one until another, with the apps and kinds that were written.
SELECT global_seq, app_id, kinds FROM envelopes WHERE global_seq > ?1 AND global_seq <= ?2 ORDER BY global_seq LIMIT ?3

-- name: count_rows
-- `seq_row` has the first row of each seq, so the rows are the distances between them.
SELECT global_seq, coalesce(next_id, (SELECT max(id) + 1 FROM app_{n}_{kind})) - first_id FROM (
    SELECT global_seq, first_id, lead(first_id) OVER (ORDER BY global_seq) AS next_id FROM seq_row
    WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 AND global_seq <= coalesce((
        SELECT s.global_seq FROM seq_row AS s
        WHERE s.app_id = {n} AND s.kind = {bit} AND s.global_seq > ?2 ORDER BY s.global_seq LIMIT 1
    ), ?2)
) WHERE global_seq <= ?2

-- name: count_envelopes
SELECT global_seq, count(*) FROM envelopes WHERE global_seq > ?1 AND global_seq <= ?2
GROUP BY global_seq ORDER BY global_seq LIMIT ?3

-- name: envelopes
SELECT
    e.global_seq AS global_seq, e.app_id AS app_id, a.slug AS app, e.kinds AS kinds, e.sync_flags AS sync_flags,
    e.created_at AS created_at, e.trace_id AS trace_id
FROM envelopes AS e LEFT JOIN apps AS a USING (app_id)

-- name: apps
SELECT
    a.app_id AS app_id, a.slug AS app, a.title AS title, a.version AS version, a.created_at AS created_at,
    u.rows AS rows, u.bytes AS bytes, u.rows_max AS rows_max, u.bytes_max AS bytes_max
FROM apps AS a LEFT JOIN app_usage AS u USING (app_id)

-- name: types
SELECT {n} AS app_id, (SELECT slug FROM apps WHERE app_id = {n}) AS app, t.id AS type_id, t.kind AS kind, t.type_key AS type
FROM app_{n}_type AS t

-- name: logs
SELECT
    {n} AS app_id, (SELECT slug FROM apps WHERE app_id = {n}) AS app, l.id AS id, l.level AS level,
    l.event_type AS event_type, l.context_json AS context_json, l.created_at AS created_at
FROM app_{n}_log AS l

-- name: identities
SELECT id, pubkey, label, created_at FROM identities

-- name: peers
-- For each peer and domain: envelopes accepted from it, those it has confirmed, and own rows that are not signed yet.
SELECT
    p.id AS peer_id, p.identity_id AS identity_id, p.endpoint AS endpoint, d.domain AS domain, r.last_seq AS received,
    s.last_seq AS sent, n.entries AS newest, n.entries - coalesce(s.last_seq, 0) AS lag,
    (SELECT count(*) FROM sync_queue AS q WHERE q.domain = d.domain) AS waiting
FROM peers AS p CROSS JOIN sync_domains AS d
JOIN (
    SELECT i.domain, count(e.id) AS entries FROM sync_domains AS i
    LEFT JOIN sync_log AS l ON l.domain = i.domain LEFT JOIN sync_entry AS e ON e.log_id = l.id
    GROUP BY i.domain
) AS n ON n.domain = d.domain
LEFT JOIN sync_state AS r ON r.peer_id = p.id AND r.domain = d.domain
LEFT JOIN sync_sent AS s ON s.peer_id = p.id AND s.domain = d.domain

-- name: rows
-- The rows of one kind of one app; {columns} are those of the kind, with the names of the table. Ids and seqs grow together,
-- so the bounds are a range of ids.
SELECT
    {n} AS app_id, (SELECT slug FROM apps WHERE app_id = {n}) AS app, '{kind}' AS kind,
    (SELECT t.type_key FROM app_{n}_type AS t WHERE t.id = r.type_id) AS type, {columns}
FROM app_{n}_{kind} AS r
WHERE r.id >= coalesce((
        SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
    ), 9223372036854775807) AND r.id < coalesce((
        SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?2 ORDER BY global_seq LIMIT 1
    ), 9223372036854775807)

-- name: versions
-- The input of the fold: the first versions of the objects of one kind of one app until the cut, by object. Ids have that
-- order, so nothing is sorted.
SELECT
    r.id AS target, {n} AS app_id, (SELECT slug FROM apps WHERE app_id = {n}) AS app, '{kind}' AS kind,
    '{kind}' AS wanted, (SELECT t.type_key FROM app_{n}_type AS t WHERE t.id = r.type_id) AS type, r.id AS via,
    NULL AS judged_owner, {columns}
FROM app_{n}_{kind} AS r
WHERE r.id > ?1 AND r.id <= ?2 AND r.object_id = r.id AND +r.global_seq <= {cut}

-- name: later_versions
-- The other versions, by object.
SELECT
    w.object_id AS target, {n} AS app_id, (SELECT slug FROM apps WHERE app_id = {n}) AS app, '{kind}' AS kind,
    '{kind}' AS wanted, (SELECT t.type_key FROM app_{n}_type AS t WHERE t.id = r.type_id) AS type, r.id AS via,
    NULL AS judged_owner, {columns}
FROM row_version AS w CROSS JOIN app_{n}_{kind} AS r
WHERE w.app_id = {n} AND w.kind = {bit} AND w.object_id > ?1 AND w.object_id <= ?2 AND r.id = w.id
    AND +r.global_seq <= {cut}

-- name: judgements
-- The ratings that suppress what hides one of these versions: its object, or its target by {column}, a {target}. The
-- owner of that object decides whether they count. There are few of them, so they drive the join.
SELECT
    v.object_id AS target, {n} AS app_id, NULL AS app, 'judgement' AS kind, '{kind}' AS wanted, 'suppress' AS type,
    v.id AS via, (SELECT o.owner_identity FROM app_{n}_{target} AS o WHERE o.id = r.target_{target}_id) AS judged_owner,
    {columns}
FROM app_{n}_rating AS r CROSS JOIN app_{n}_{kind} AS v
WHERE r.type_id = (SELECT t.id FROM app_{n}_type AS t WHERE t.kind = 'rating' AND t.type_key = 'suppress')
    AND +r.global_seq <= {cut} AND v.{column} = r.target_{target}_id AND v.id IN ({pointing})
    AND +v.object_id > ?1 AND +v.object_id <= ?2 AND +v.global_seq <= {cut}

-- name: judgements_of_parents
-- The ratings of the parent of an attribute that a version is, or points at by {column}.
SELECT
    v.object_id AS target, {n} AS app_id, NULL AS app, 'judgement' AS kind, '{kind}' AS wanted, 'suppress' AS type,
    v.id AS via, (SELECT o.owner_identity FROM app_{n}_parent AS o WHERE o.id = r.target_parent_id) AS judged_owner,
    {columns}
FROM app_{n}_rating AS r CROSS JOIN app_{n}_attr AS a CROSS JOIN app_{n}_{kind} AS v
WHERE r.type_id = (SELECT t.id FROM app_{n}_type AS t WHERE t.kind = 'rating' AND t.type_key = 'suppress')
    AND +r.global_seq <= {cut} AND a.parent_id = r.target_parent_id AND a.id = a.object_id AND v.{column} = a.id
    AND v.id IN ({pointing})
    AND +v.object_id > ?1 AND +v.object_id <= ?2 AND +v.global_seq <= {cut}

-- name: merged
-- Versions and judgements of the objects of one kind of one app, merged by object.
UNION ALL SELECT {columns} FROM ({parts} ORDER BY target LIMIT -1)

-- name: folding
-- A sample row that fixes the types, then one table after the other.
SELECT {samples} {merged}

-- name: greatest_object
SELECT coalesce(max(id), 0) FROM app_{n}_{kind}

-- name: by_object
-- Versions and judgements of the objects of one kind of one app, by object.
SELECT {columns} FROM ({parts}) ORDER BY target
