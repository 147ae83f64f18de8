-- The tables of documents in a space of revisions. Those of a space of facts that differ are in facts.sql.
--
-- ?1 and ?2 bound the position of a row: after ?1, until ?2, which is the cut. If a table has a position, the bounds are
-- added around the query; inside it ?2 is only used where a row has changed since the cut.
-- Conditions, casts and selected columns are added around a query too, so it returns every column of the table.

-- name: scan
-- Wraps a query: a sample row that fixes the type of every column, then the selected rows.
SELECT {samples} {parts}

-- name: part
UNION ALL SELECT {columns} FROM ({query}) WHERE {conditions}

-- name: each_branch
-- The key of the log begins with the branch; with this condition a lookup of an entity needs no scan.
branch IN (SELECT name FROM branch)

-- name: branch_lines
-- Every branch that existed at a seq, and its fork point.
SELECT name, parent_branch, fork_seq FROM branch WHERE created_seq <= ?1

-- name: horizon
-- Everything from this seq can be read; history below it was removed by gc.
SELECT seq FROM gc_horizon

-- name: collected
-- True if gc removed or changed rows of the log.
SELECT seq > 0 OR requests_seq > 0 FROM gc_horizon

-- name: readable
-- True if a branch can be read at a seq: at or above the horizon, or at one of the retained points.
SELECT ?2 >= h.seq OR ?2 = 0 OR EXISTS (SELECT 1 FROM gc_point WHERE branch = ?1 AND seq = ?2) FROM gc_horizon AS h

-- name: whole_after
-- True if every row after a seq still exists.
SELECT ?1 >= seq FROM gc_horizon

-- name: next_bound
-- The key a number of entities after another one.
SELECT branch, id FROM head WHERE (branch, id) > (?1, ?2) ORDER BY branch, id LIMIT 1 OFFSET ?3

-- name: last_branch
-- The greatest name of a branch. If it is that of the default branch, there is no other.
SELECT coalesce(max(name), '') FROM branch

-- name: count_commits
-- The end of a batch with a number of rows: the first commits after a seq until another, with their row counts.
SELECT seq, 1 FROM "commit" WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3

-- name: count_revisions
SELECT c.seq, (SELECT count(*) FROM revision AS r WHERE r.branch = c.branch AND r.seq = c.seq)
FROM "commit" AS c WHERE c.seq > ?1 AND c.seq <= ?2 ORDER BY c.seq LIMIT ?3

-- name: commits
SELECT
    seq, branch, session_id AS session, local_seq, created_at AS time, original, resolution,
    NULL AS hash, NULL AS previous
FROM "commit"

-- name: revisions
SELECT
    branch, id, seq, op_index, op, data,
    (SELECT c.created_at FROM "commit" AS c WHERE c.seq = revision.seq) AS time, NULL AS fact
FROM revision

-- name: all_revisions
-- The time of a commit is stored after its request, which may be large, so it is not looked up for each row.
WITH times AS MATERIALIZED (SELECT seq, created_at FROM "commit")
SELECT
    r.branch AS branch, r.id AS id, r.seq AS seq, r.op_index AS op_index, r.op AS op, r.data AS data,
    t.created_at AS time, NULL AS fact
FROM revision AS r LEFT JOIN times AS t ON t.seq = r.seq

-- name: recent_revisions
-- The commits drive the join, by the index on branch and seq.
SELECT
    r.branch AS branch, r.id AS id, c.seq AS seq, r.op_index AS op_index, r.op AS op, r.data AS data,
    c.created_at AS time, NULL AS fact
FROM "commit" AS c CROSS JOIN revision AS r INDEXED BY idx_revision_branch_seq
ON r.branch = c.branch AND r.seq = c.seq

-- name: snapshot_operations
-- Snapshots as log rows, each after all operations of its seq.
SELECT branch, id, seq, 2147483647 AS op_index, 'snapshot' AS op, value AS data FROM snapshot

-- name: facts
SELECT
    NULL AS hash, NULL AS id, NULL AS value_ref, NULL AS parent, NULL AS branch, NULL AS seq, NULL AS commit_ref,
    NULL AS op
WHERE 0

-- name: values
SELECT NULL AS hash, NULL AS data WHERE 0

-- name: branches
-- A branch that was written or ended after the cut is shown as of the cut, based on its commits, which include its
-- creation and its end. After its end there are none.
SELECT
    name AS branch, parent_branch AS parent, fork_seq, created_seq,
    CASE
        WHEN head_seq <= ?2 THEN head_seq
        ELSE coalesce((SELECT max(c.seq) FROM "commit" AS c WHERE c.branch = name AND c.seq <= ?2), created_seq)
    END AS head_seq,
    CASE
        WHEN status <> 'active' AND ?2 < (SELECT max(c.seq) FROM "commit" AS c WHERE c.branch = name) THEN 'active'
        ELSE status
    END AS status,
    created_at AS time
FROM branch

-- name: snapshots
SELECT branch, id, seq, value AS document FROM snapshot

-- name: blobs
SELECT 'sha256:' || hash AS hash, size, content_type, created_at AS time, data FROM blob_store

-- name: heads
-- The number of entities of a file, over all branches.
SELECT count(*) FROM head
