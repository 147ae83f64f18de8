-- The rows of one line of history that a fold needs, grouped by entity and in log order. Each part covers one branch of
-- the line. Placeholders are the numbers of bound values, conditions on the ids, and the query of the table `snapshots`,
-- which differs between the two kinds of history.

-- name: line
-- A sample row that fixes the type of every column, then all parts, which SQLite merges in order. The limit of -1 keeps
-- SQLite from dropping the order of a subquery.
SELECT {samples} UNION ALL
SELECT {columns} FROM ({parts} ORDER BY 1, 2, 3 LIMIT -1)

-- name: plain_line
-- All parts, which SQLite merges in order.
{parts} ORDER BY 1, 2, 3

-- name: log
-- The log of a branch from the newest whole document at or before a seq: a snapshot, a set or a delete. Earlier rows are
-- not read. The heads drive the join, because they have each entity once.
SELECT h.id AS id, r.seq AS seq, r.op_index AS op_index, r.op AS op, r.data AS data
FROM head AS h CROSS JOIN revision AS r
ON r.branch = h.branch AND r.id = h.id AND r.seq <= {cap} AND r.seq >= coalesce(
    (SELECT x.seq FROM revision AS x
     WHERE x.branch = h.branch AND x.id = h.id AND x.seq <= {base} AND x.op <> 'patch' AND x.seq > coalesce(
         (SELECT max(s.seq) FROM snapshot AS s WHERE s.branch = h.branch AND s.id = h.id AND s.seq <= {base}), 0)
     ORDER BY x.seq DESC LIMIT 1),
    (SELECT max(s.seq) + 1 FROM snapshot AS s WHERE s.branch = h.branch AND s.id = h.id AND s.seq <= {base}),
    0)
WHERE h.branch = {branch}{conditions}

-- name: wholes
-- The newest snapshot of each entity at or before a seq, after all operations of its commit. One that a later set or
-- delete supersedes is included: the fold drops it.
SELECT h.id AS id, s.seq AS seq, 2147483647 AS op_index, 'snapshot' AS op, s.document AS data
FROM head AS h CROSS JOIN ({snapshots}) AS s
ON s.branch = h.branch AND s.id = h.id AND s.seq = (
    SELECT max(t.seq) FROM snapshot AS t WHERE t.branch = h.branch AND t.id = h.id AND t.seq <= {base}
)
WHERE h.branch = {branch}{conditions}

-- name: whole_log
-- The whole log of a branch.
SELECT h.id AS id, r.seq AS seq, r.op_index AS op_index, r.op AS op, r.data AS data
FROM head AS h CROSS JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq <= {cap}
WHERE h.branch = {branch}{conditions}

-- name: changed
-- The entities that one branch wrote after a seq until another, by the index on branch and seq.
SELECT c.id FROM revision AS c WHERE c.branch = {branch} AND c.seq > {since} AND c.seq <= {cap}
