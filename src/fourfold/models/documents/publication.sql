-- What publishing asks of a space, in both kinds of history. {columns} are those of the table `t`.

-- name: branches
-- The branches that have commits after a seq. The plus keeps SQLite from walking the index of branches.
SELECT {columns} FROM (SELECT DISTINCT +branch AS branch FROM "commit" WHERE seq > ?1) AS c CROSS JOIN branch AS t ON t.name = c.branch

-- name: bases
-- The snapshots with which the log begins: what they were derived from is gone.
SELECT {columns} FROM gc_base AS b CROSS JOIN snapshot AS t ON t.branch = b.branch AND t.id = b.id AND t.seq = b.seq

-- name: changed_bases
SELECT {columns} FROM published_change AS c
CROSS JOIN gc_base AS b ON b.branch = (c.row_key ->> 0) AND b.id = (c.row_key ->> 1) AND b.seq = (c.row_key ->> 2)
CROSS JOIN snapshot AS t ON t.branch = b.branch AND t.id = b.id AND t.seq = b.seq
WHERE c.table_name = 'gc_base' AND c.change <= ?1

-- name: occurrences
-- The facts that were asserted after a seq. The commit says on which branch to look.
SELECT {columns} FROM "commit" AS c
CROSS JOIN occurrence AS t INDEXED BY idx_occurrence_branch_seq ON t.branch = c.branch AND t.seq = c.seq
WHERE c.seq > ?1 ORDER BY c.seq, t.op_index

-- name: facts
-- Those that were first asserted after a seq.
SELECT {columns} FROM "commit" AS c
CROSS JOIN occurrence AS o INDEXED BY idx_occurrence_branch_seq ON o.branch = c.branch AND o.seq = c.seq
CROSS JOIN fact AS t ON t.hash = o.fact_hash AND t.seq = o.seq
WHERE c.seq > ?1 ORDER BY c.seq, o.op_index

-- name: facts_values
-- The values of those. One that several facts have comes several times.
SELECT {columns} FROM "commit" AS c
CROSS JOIN occurrence AS o INDEXED BY idx_occurrence_branch_seq ON o.branch = c.branch AND o.seq = c.seq
CROSS JOIN fact AS f ON f.hash = o.fact_hash AND f.seq = o.seq
CROSS JOIN value AS t ON t.hash = f.value_ref
WHERE c.seq > ?1

-- name: all_values
-- The values of facts, and of snapshots with which the log begins; the others are derived.
SELECT {columns} FROM fact AS f CROSS JOIN value AS t ON t.hash = f.value_ref
UNION ALL
SELECT {columns} FROM gc_base AS b
CROSS JOIN snapshot AS s ON s.branch = b.branch AND s.id = b.id AND s.seq = b.seq
CROSS JOIN value AS t ON t.hash = s.value_ref

-- name: values_of_bases
SELECT {columns} FROM published_change AS c
CROSS JOIN gc_base AS b ON b.branch = (c.row_key ->> 0) AND b.id = (c.row_key ->> 1) AND b.seq = (c.row_key ->> 2)
CROSS JOIN snapshot AS s ON s.branch = b.branch AND s.id = b.id AND s.seq = b.seq
CROSS JOIN value AS t ON t.hash = s.value_ref
WHERE c.table_name = 'gc_base' AND c.change <= ?1

-- name: heads_of_revisions
-- The newest row of each entity on each branch; op_index is that of the last of them in a commit.
INSERT INTO head (branch, id, seq, op_index)
SELECT r.branch, r.id, r.seq, max(r.op_index)
FROM (SELECT branch, id, max(seq) AS seq FROM revision GROUP BY branch, id) AS n
CROSS JOIN revision AS r ON r.branch = n.branch AND r.id = n.id AND r.seq = n.seq
GROUP BY r.branch, r.id

-- name: head_of_revisions
-- The newest row of one entity on a branch.
INSERT OR REPLACE INTO head (branch, id, seq, op_index)
SELECT branch, id, seq, op_index FROM revision WHERE branch = ?1 AND id = ?2 ORDER BY seq DESC, op_index DESC LIMIT 1

-- name: head_of_facts
INSERT OR REPLACE INTO head (branch, id, fact_hash, seq, op_index)
SELECT branch, id, fact_hash, seq, op_index FROM occurrence WHERE branch = ?1 AND id = ?2 ORDER BY seq DESC, op_index DESC LIMIT 1

-- name: heads_of_facts
-- The hash is that of the row with the greatest op_index.
INSERT INTO head (branch, id, fact_hash, seq, op_index)
SELECT o.branch, o.id, o.fact_hash, o.seq, max(o.op_index)
FROM (SELECT branch, id, max(seq) AS seq FROM occurrence GROUP BY branch, id) AS n
CROSS JOIN occurrence AS o ON o.branch = n.branch AND o.id = n.id AND o.seq = n.seq
GROUP BY o.branch, o.id
