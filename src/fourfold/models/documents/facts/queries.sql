-- What a log of facts is asked in its own way. All other questions are those of a space of revisions, word for word:
-- the view `revision` answers them.

-- name: greatest_seq
-- The greatest seq that a row of the log carries: the last entry of each branch in the index.
SELECT coalesce(max((SELECT max(o.seq) FROM occurrence AS o WHERE o.branch = b.name)), 0) FROM branch AS b

-- name: revisions_of_commit
-- The commit says on which branch to look, so that one index serves this and the searches by branch.
SELECT branch, id, seq, op_index, op, data FROM revision
WHERE branch = (SELECT branch FROM "commit" WHERE seq = ?1) AND seq = ?1 ORDER BY op_index

-- name: newest_commit
-- What the next commit follows.
SELECT hash FROM "commit" ORDER BY seq DESC LIMIT 1

-- name: insert_commit
-- The reads stand in the request; the column of the specification repeats them. A branch's birth or end has none.
INSERT INTO "commit" (hash, seq, branch, session_id, local_seq, original, resolution, previous, created_at, reads)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, json_extract(?6, '$.reads'))

-- name: insert_occurrence
-- The text is kept only where the value's row spells the value otherwise. It is asked after the value was inserted.
INSERT INTO occurrence (branch, id, seq, op_index, fact_hash, fact_type, text)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, (SELECT data FROM value WHERE hash = ?8)))

-- name: head_fact
-- The newest fact that a branch itself has about an entity.
SELECT fact_hash FROM head WHERE branch = ?1 AND id = ?2

-- name: head_facts
-- The same for many entities, a JSON array of ids.
SELECT h.id, h.fact_hash FROM json_each(?2) AS wanted CROSS JOIN head AS h ON h.branch = ?1 AND h.id = wanted.value

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

-- name: insert_fact
-- A fact that another branch has said before is there already.
INSERT INTO fact (hash, id, value_ref, parent, branch, seq, commit_ref, fact_type) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hash) DO NOTHING

-- name: insert_snapshot
-- Not with REPLACE, whose deletion runs no trigger: gc may be building an index of this table.
INSERT INTO snapshot (branch, id, seq, value_ref, text)
VALUES (?1, ?2, ?3, ?4, nullif(?5, (SELECT data FROM value WHERE hash = ?4)))
ON CONFLICT (branch, id, seq) DO UPDATE SET value_ref = excluded.value_ref, text = excluded.text

-- name: newest_snapshot
SELECT s.seq, coalesce(s.text, (SELECT v.data FROM value AS v WHERE v.hash = s.value_ref)) FROM snapshot AS s
WHERE s.branch = ?1 AND s.id = ?2 AND s.seq <= ?3 ORDER BY s.seq DESC LIMIT 1

-- name: snapshots_at
-- The snapshots that an array of pairs [id, seq] names.
SELECT s.id, coalesce(s.text, (SELECT v.data FROM value AS v WHERE v.hash = s.value_ref))
FROM (SELECT value ->> 0 AS id, value ->> 1 AS seq FROM json_each(?2)) AS wanted
CROSS JOIN snapshot AS s ON s.branch = ?1 AND s.id = wanted.id AND s.seq = wanted.seq

-- What collections ask of a log of facts in its own way.

-- name: newest_base
SELECT s.seq, coalesce(s.text, (SELECT v.data FROM value AS v WHERE v.hash = s.value_ref)) FROM gc_base AS b
CROSS JOIN snapshot AS s ON s.branch = b.branch AND s.id = b.id AND s.seq = b.seq
WHERE b.branch = ?1 AND b.id = ?2 AND b.seq <= ?3 ORDER BY b.seq DESC LIMIT 1

-- name: doomed_rows
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(fact_hash AS BLOB), CAST(fact_type AS BLOB),
    CAST(text AS BLOB)
FROM occurrence WHERE branch = ?1 AND id = ?2 AND (seq, op_index) > (?3, ?4) AND (seq, op_index) < (?5, ?6)
ORDER BY seq DESC, op_index DESC LIMIT ?7

-- name: sealed_commit
SELECT CAST(hash AS BLOB), seq, CAST(branch AS BLOB), CAST(session_id AS BLOB), local_seq, CAST(original AS BLOB),
    CAST(resolution AS BLOB), CAST(previous AS BLOB), CAST(reads AS BLOB), CAST(created_at AS BLOB)
FROM "commit" WHERE seq = ?1

-- name: sealed_rows
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(fact_hash AS BLOB), CAST(fact_type AS BLOB),
    CAST(text AS BLOB)
FROM occurrence INDEXED BY idx_occurrence_branch_seq
WHERE branch = (SELECT branch FROM "commit" WHERE seq = ?1) AND seq = ?1

-- name: shorten_request
-- The reads stand in the request, and go with it.
UPDATE "commit" SET original = ?2, reads = NULL WHERE seq = ?1

-- name: snapshots_between
SELECT seq, coalesce(octet_length(text), 0), value_ref FROM snapshot
WHERE branch = ?1 AND id = ?2 AND seq >= ?3 AND seq <= ?4

-- name: snapshots_page
SELECT branch, id, seq, (SELECT v.data FROM value AS v WHERE v.hash = value_ref) FROM snapshot
WHERE (branch, id, seq) > (?1, ?2, ?3) ORDER BY branch, id, seq LIMIT ?4

-- name: delete_occurrence
DELETE FROM occurrence WHERE branch = ?1 AND id = ?2 AND seq = ?3 AND op_index = ?4

-- name: value_of_fact
SELECT value_ref FROM fact WHERE hash = ?1

-- name: delete_fact
-- A fact that no branch says any more.
DELETE FROM fact WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM occurrence WHERE fact_hash = ?1)

-- name: move_fact
-- Where a fact is said first, after the place where it was first said is gone.
UPDATE fact SET (branch, seq, commit_ref) = (
    SELECT o.branch, o.seq, c.hash FROM occurrence AS o JOIN "commit" AS c ON c.seq = o.seq
    WHERE o.fact_hash = ?1 ORDER BY o.seq LIMIT 1
) WHERE hash = ?1

-- name: orphan
-- The size of a value that neither a fact nor a snapshot refers to.
SELECT octet_length(data) FROM value AS v WHERE hash = ?1 AND hash <> '__empty__'
    AND NOT EXISTS (SELECT 1 FROM fact WHERE value_ref = v.hash)
    AND NOT EXISTS (SELECT 1 FROM snapshot WHERE value_ref = v.hash)

-- name: delete_value
DELETE FROM value WHERE hash = ?1

-- name: values_page
-- A page of the values, and whether anything refers to each.
SELECT hash, hash = '__empty__' OR EXISTS (SELECT 1 FROM fact WHERE value_ref = v.hash)
    OR EXISTS (SELECT 1 FROM snapshot WHERE value_ref = v.hash)
FROM value AS v WHERE hash > ?1 ORDER BY hash LIMIT ?2

-- The questions of verification. They give text as bytes: damaged text may be no text any more, and must be seen all
-- the same.

-- name: verify_snapshots
SELECT CAST(s.branch AS BLOB), CAST(s.id AS BLOB), s.seq, CAST(coalesce(s.text, v.data) AS BLOB), (
    SELECT CAST(b.digest AS BLOB) FROM gc_base AS b WHERE b.branch = s.branch AND b.id = s.id AND b.seq = s.seq
)
FROM snapshot AS s LEFT JOIN value AS v ON v.hash = s.value_ref
WHERE (s.branch, s.id, s.seq) >= (?1, ?2, ?3) AND (s.branch, s.id) < (?4, ?5) AND s.seq NOT BETWEEN ?6 AND ?7
ORDER BY s.branch, s.id, s.seq

-- name: verify_spellings
-- Snapshots that spell their value otherwise than its row.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, CAST(value_ref AS BLOB), CAST(text AS BLOB)
FROM snapshot WHERE text IS NOT NULL AND (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4)

-- name: verify_reserved
-- There are no such tables.
SELECT NULL, NULL WHERE false

-- name: verify_values
SELECT CAST(hash AS BLOB), CAST(data AS BLOB) FROM value WHERE hash >= ?1 AND hash < ?2

-- name: verify_empty
-- Whether the value of deleted entities is there, and has no data.
SELECT EXISTS (SELECT 1 FROM value WHERE hash = '__empty__' AND data IS NULL)

-- name: verify_facts
-- Each fact, and after it the occurrence that its row states as the first, as the log has it.
SELECT CAST(f.hash AS BLOB), CAST(f.id AS BLOB), CAST(f.value_ref AS BLOB), CAST(f.parent AS BLOB),
    CAST(f.fact_type AS BLOB), CAST(f.branch AS BLOB), f.seq, CAST(f.commit_ref AS BLOB),
    CAST(o.branch AS BLOB), o.seq, CAST(c.hash AS BLOB)
FROM fact AS f
LEFT JOIN occurrence AS o ON o.branch = f.branch AND o.id = f.id AND o.seq = f.seq AND o.fact_hash = f.hash
LEFT JOIN "commit" AS c ON c.seq = o.seq
WHERE f.hash >= ?1 AND f.hash < ?2

-- name: verify_occurrences
-- The log after a position, in the order of each branch's entities, with the facts, values and commits that it refers to,
-- without the commits from ?7 to ?8.
SELECT CAST(o.branch AS BLOB), CAST(o.id AS BLOB), o.seq, o.op_index, CAST(o.fact_hash AS BLOB),
    CAST(o.fact_type AS BLOB), CAST(o.text AS BLOB), CAST(f.id AS BLOB), CAST(f.fact_type AS BLOB),
    CAST(f.parent AS BLOB), CAST(f.value_ref AS BLOB), v.hash IS NOT NULL, CAST(c.branch AS BLOB), f.seq > o.seq,
    CAST(v.data AS BLOB)
FROM occurrence AS o
LEFT JOIN fact AS f ON f.hash = o.fact_hash
LEFT JOIN value AS v ON v.hash = f.value_ref
LEFT JOIN "commit" AS c ON c.seq = o.seq
WHERE (o.branch, o.id, o.seq, o.op_index) > (?1, ?2, ?3, ?4) AND (o.branch, o.id) < (?5, ?6)
    AND o.seq NOT BETWEEN ?7 AND ?8
ORDER BY o.branch, o.id, o.seq, o.op_index

-- name: verify_commits
SELECT CAST(hash AS BLOB), seq, CAST(branch AS BLOB), CAST(session_id AS BLOB), local_seq, CAST(original AS BLOB),
    CAST(resolution AS BLOB), CAST(previous AS BLOB), CAST(reads AS BLOB), CAST(created_at AS BLOB)
FROM "commit" WHERE seq >= ?1 AND seq < ?2 ORDER BY seq

-- name: verify_commit_before
SELECT CAST(hash AS BLOB) FROM "commit" WHERE seq < ?1 ORDER BY seq DESC LIMIT 1

-- name: occurrences_of_commit
SELECT op_index, CAST(fact_hash AS BLOB), CAST(data AS BLOB)
FROM revision WHERE branch = ?1 AND seq = ?2 ORDER BY op_index

-- name: verify_heads
-- Heads that do not point at the newest fact of their entity, and entities without a head.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB) FROM head AS h
WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4) AND (NOT EXISTS (
    SELECT 1 FROM occurrence AS o
    WHERE o.branch = h.branch AND o.id = h.id AND o.seq = h.seq AND o.op_index = h.op_index
      AND o.fact_hash = h.fact_hash
) OR EXISTS (
    SELECT 1 FROM occurrence AS o
    WHERE o.branch = h.branch AND o.id = h.id AND (o.seq, o.op_index) > (h.seq, h.op_index)
))
UNION
SELECT CAST(branch AS BLOB), CAST(id AS BLOB) FROM (
    SELECT DISTINCT branch, id FROM occurrence WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4)
) AS o
WHERE NOT EXISTS (SELECT 1 FROM head AS h WHERE h.branch = o.branch AND h.id = o.id)
