-- The tables of documents that differ between a space of facts and one of revisions.

-- name: count_revisions
SELECT c.seq, (SELECT count(*) FROM occurrence AS o WHERE o.branch = c.branch AND o.seq = c.seq)
FROM "commit" AS c WHERE c.seq > ?1 AND c.seq <= ?2 ORDER BY c.seq LIMIT ?3

-- name: commits
SELECT
    seq, branch, session_id AS session, local_seq, created_at AS time, original, resolution, hash, previous
FROM "commit"

-- name: revisions
SELECT
    branch, id, seq, op_index, op, data,
    (SELECT c.created_at FROM "commit" AS c WHERE c.seq = revision.seq) AS time, fact_hash AS fact
FROM revision

-- name: all_revisions
WITH times AS MATERIALIZED (SELECT seq, created_at FROM "commit")
SELECT
    r.branch AS branch, r.id AS id, r.seq AS seq, r.op_index AS op_index, r.op AS op, r.data AS data,
    t.created_at AS time, r.fact_hash AS fact
FROM revision AS r LEFT JOIN times AS t ON t.seq = r.seq

-- name: recent_revisions
SELECT
    o.branch AS branch, o.id AS id, c.seq AS seq, o.op_index AS op_index, o.fact_type AS op,
    coalesce(
        o.text,
        (SELECT v.data FROM fact AS f JOIN value AS v ON v.hash = f.value_ref WHERE f.hash = o.fact_hash)
    ) AS data,
    c.created_at AS time, o.fact_hash AS fact
FROM "commit" AS c CROSS JOIN occurrence AS o INDEXED BY idx_occurrence_branch_seq
ON o.branch = c.branch AND o.seq = c.seq

-- name: snapshot_operations
SELECT
    branch, id, seq, 2147483647 AS op_index, 'snapshot' AS op,
    coalesce(text, (SELECT v.data FROM value AS v WHERE v.hash = value_ref)) AS data
FROM snapshot

-- name: facts
SELECT hash, id, value_ref, parent, branch, seq, commit_ref, fact_type AS op FROM fact

-- name: values
SELECT hash, data FROM value

-- name: snapshots
SELECT
    branch, id, seq, coalesce(text, (SELECT v.data FROM value AS v WHERE v.hash = value_ref)) AS document
FROM snapshot
