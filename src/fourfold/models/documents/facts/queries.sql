-- What a log of facts is asked in its own way. All other questions are those of a space of revisions, word for word:
-- the view `revision` answers them.

-- name: greatest_seq
-- The greatest seq that a row of the log carries.
SELECT coalesce(max(seq), 0) FROM occurrence

-- name: newest_commit
-- What the next commit follows.
SELECT hash FROM "commit" ORDER BY seq DESC LIMIT 1

-- name: insert_commit
-- The reads stand in the request; the column of the specification repeats them. A branch's birth or end has none.
INSERT INTO "commit" (hash, seq, branch, session_id, local_seq, original, resolution, previous, reads)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, json_extract(?6, '$.reads'))

-- name: insert_occurrence
-- The text is kept only where the value's row spells the value otherwise. It is asked after the value was inserted.
INSERT INTO occurrence (branch, id, seq, op_index, fact_hash, fact_type, text)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, (SELECT data FROM value WHERE hash = ?8)))

-- name: head_fact
-- The newest fact that a branch itself has about an entity.
SELECT fact_hash FROM head WHERE branch = ?1 AND id = ?2

-- name: newest_fact
-- The newest fact about an entity of one branch at or before a seq: what a child that forked there follows.
SELECT fact_hash FROM occurrence
WHERE branch = ?1 AND id = ?2 AND seq <= ?3 ORDER BY seq DESC, op_index DESC LIMIT 1

-- name: upsert_head
INSERT INTO head (branch, id, seq, op_index, fact_hash) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (branch, id) DO UPDATE
SET seq = excluded.seq, op_index = excluded.op_index, fact_hash = excluded.fact_hash

-- name: insert_value
INSERT INTO value (hash, data) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING

-- name: insert_snapshot
INSERT OR REPLACE INTO snapshot (branch, id, seq, value_ref, text)
VALUES (?1, ?2, ?3, ?4, nullif(?5, (SELECT data FROM value WHERE hash = ?4)))

-- name: newest_snapshot
SELECT s.seq, coalesce(s.text, (SELECT v.data FROM value AS v WHERE v.hash = s.value_ref)) FROM snapshot AS s
WHERE s.branch = ?1 AND s.id = ?2 AND s.seq <= ?3 ORDER BY s.seq DESC LIMIT 1

-- name: verify_snapshots
SELECT s.branch, s.id, s.seq, coalesce(s.text, v.data)
FROM snapshot AS s LEFT JOIN value AS v ON v.hash = s.value_ref

-- name: verify_values
SELECT hash, data FROM value

-- name: verify_facts
-- Each fact, with the place where it was first said, as the log has it.
SELECT f.hash, f.id, f.value_ref, f.parent, f.fact_type, f.branch, f.seq, f.commit_ref,
    o.branch, o.seq, c.hash
FROM fact AS f
LEFT JOIN (SELECT fact_hash, branch, min(seq) AS seq FROM occurrence GROUP BY fact_hash) AS o ON o.fact_hash = f.hash
LEFT JOIN "commit" AS c ON c.seq = o.seq

-- name: verify_occurrences
-- The log in the order of each branch's entities, with the facts and values that it names, and the commits.
SELECT o.branch, o.id, o.seq, o.op_index, o.fact_hash, o.fact_type, o.text,
    f.id, f.fact_type, f.parent, f.value_ref, v.hash IS NOT NULL, v.data, c.branch
FROM occurrence AS o
LEFT JOIN fact AS f ON f.hash = o.fact_hash
LEFT JOIN value AS v ON v.hash = f.value_ref
LEFT JOIN "commit" AS c ON c.seq = o.seq
ORDER BY o.branch, o.id, o.seq, o.op_index

-- name: verify_commits
SELECT hash, seq, branch, session_id, local_seq, original, resolution, previous, reads, created_at
FROM "commit" ORDER BY seq

-- name: occurrences_of_commit
SELECT op_index, fact_hash, data FROM revision WHERE commit_seq = ? ORDER BY op_index

-- name: verify_spellings
-- Snapshots that spell their value otherwise than its row.
SELECT branch, id, seq, value_ref, text FROM snapshot WHERE text IS NOT NULL

-- name: verify_heads
-- Heads that do not point at the newest fact of their entity, and entities without a head.
SELECT branch, id FROM head AS h WHERE NOT EXISTS (
    SELECT 1 FROM occurrence AS o
    WHERE o.branch = h.branch AND o.id = h.id AND o.seq = h.seq AND o.op_index = h.op_index
      AND o.fact_hash = h.fact_hash
) OR EXISTS (
    SELECT 1 FROM occurrence AS o
    WHERE o.branch = h.branch AND o.id = h.id AND (o.seq, o.op_index) > (h.seq, h.op_index)
)
UNION
SELECT branch, id FROM occurrence AS o WHERE NOT EXISTS (
    SELECT 1 FROM head AS h WHERE h.branch = o.branch AND h.id = o.id
)
