-- name: key_value_get
SELECT value FROM pair WHERE key = ?

-- name: key_value_put
INSERT INTO pair (key, value) VALUES (?, ?)

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: newest_seq
SELECT max(seq) FROM "commit"

-- name: columns_of
SELECT name FROM pragma_table_info(?) ORDER BY cid

-- name: commits_after
SELECT * FROM "commit" WHERE seq > ? ORDER BY seq

-- name: revisions_after
SELECT * FROM revision WHERE seq > ? ORDER BY seq, op_index

-- name: facts_after
SELECT * FROM fact WHERE seq > ?

-- name: occurrences_after
SELECT * FROM occurrence WHERE seq > ? ORDER BY seq, op_index

-- name: snapshots_after
SELECT * FROM snapshot WHERE seq > ? ORDER BY seq

-- name: all_values
SELECT * FROM value

-- The proof that two files hold the same rows.

-- name: every_commit
SELECT * FROM "commit" ORDER BY seq

-- name: every_revision
SELECT * FROM revision ORDER BY branch, id, seq, op_index

-- name: every_head
SELECT * FROM head ORDER BY branch, id

-- name: every_snapshot
SELECT * FROM snapshot ORDER BY branch, id, seq

-- name: every_branch
SELECT name, head_seq FROM branch ORDER BY name
