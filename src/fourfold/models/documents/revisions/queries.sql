-- name: last_seq
-- The newest seq. The counter's row is only a floor, lifted by a restore: the log itself is the counter.
SELECT max((SELECT coalesce(max(seq), 0) FROM "commit"), (SELECT value FROM kernel_sequence WHERE name = 'seq_floor'))

-- name: claim_seq
SELECT ?1 + max((SELECT coalesce(max(seq), 0) FROM "commit"), (SELECT value FROM kernel_sequence WHERE name = 'seq_floor'))

-- name: greatest_seq
-- The greatest seq that a row of the log carries.
SELECT coalesce(max(commit_seq), 0) FROM revision

-- name: commit_of_session
-- Was this request accepted before?
SELECT seq, branch, original, resolution FROM "commit" WHERE session_id = ? AND local_seq = ?

-- name: latest_local_seq
-- How far a session has come.
SELECT max(local_seq) FROM "commit" WHERE session_id = ?

-- name: commit_by_seq
SELECT seq, branch, session_id, local_seq, created_at, original, resolution FROM "commit" WHERE seq = ?

-- name: commits
SELECT seq, branch, session_id, local_seq, created_at, original, resolution
FROM "commit" WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3

-- name: commit_before
-- The newest commit at or before a seq, and when it was made.
SELECT seq, created_at FROM "commit" WHERE seq <= ? ORDER BY seq DESC LIMIT 1

-- name: first_moment
-- When the oldest commit of the log was made.
SELECT created_at FROM "commit" ORDER BY seq LIMIT 1

-- name: newest_commit_of_branch
-- The newest commit of a branch at or before a seq: writes, its creation and its deletion.
SELECT max(seq) FROM "commit" WHERE branch = ?1 AND seq <= ?2

-- name: newest_moment
SELECT created_at FROM "commit" ORDER BY seq DESC LIMIT 1

-- name: standing
-- What admission asks first: how a branch stands, the newest seq of the space, and when its newest commit was made.
SELECT
    status,
    max((SELECT coalesce(max(seq), 0) FROM "commit"), (SELECT value FROM kernel_sequence WHERE name = 'seq_floor')),
    (SELECT created_at FROM "commit" ORDER BY seq DESC LIMIT 1)
FROM branch WHERE name = ?

-- name: insert_commit
INSERT INTO "commit" (
    seq, branch, session_id, local_seq, invocation_ref, authorization_ref, original, created_at, resolution
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: upsert_head
INSERT INTO head (branch, id, seq, op_index) VALUES (?, ?, ?, ?)
ON CONFLICT (branch, id) DO UPDATE SET seq = excluded.seq, op_index = excluded.op_index

-- name: raise_branch_head
UPDATE branch SET head_seq = ?2 WHERE name = ?1

-- name: insert_snapshot
INSERT OR REPLACE INTO snapshot (branch, id, seq, value) VALUES (?, ?, ?, ?)

-- name: newest_revision
-- The last word on an entity of one branch at or before a seq.
SELECT seq, op_index, op, data FROM revision
WHERE branch = ?1 AND id = ?2 AND seq <= ?3 ORDER BY seq DESC, op_index DESC LIMIT 1

-- name: newest_snapshot
SELECT seq, value FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1

-- name: revisions_backwards
-- Back from a revision to what it builds on; the caller stops reading at the first set or delete.
SELECT seq, op_index, op, data FROM revision
WHERE branch = ?1 AND id = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq DESC, op_index DESC

-- name: revisions_of_entity
SELECT branch, id, seq, op_index, op, data FROM revision
WHERE branch = ?1 AND id = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq, op_index

-- name: revisions_of_commit
SELECT branch, id, seq, op_index, op, data FROM revision WHERE commit_seq = ? ORDER BY op_index

-- name: later_revisions
-- What happened to an entity on one branch after a reader looked, newest first.
SELECT seq, op, data, commit_seq FROM revision
WHERE branch = ?1 AND id = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq DESC, op_index DESC LIMIT ?5

-- name: branch
SELECT name, parent_branch, fork_seq, created_seq, head_seq, status, created_at FROM branch WHERE name = ?

-- name: branches
SELECT name, parent_branch, fork_seq, created_seq, head_seq, status, created_at FROM branch ORDER BY created_seq, name

-- name: insert_branch
-- A branch is as old as the commit that made it.
INSERT INTO branch (name, parent_branch, fork_seq, created_seq, head_seq, created_at)
VALUES (?1, ?2, ?3, ?4, ?4, (SELECT created_at FROM "commit" WHERE seq = ?4))

-- name: end_branch
UPDATE branch SET status = 'deleted' WHERE name = ?

-- name: last_words
-- For every entity that one branch itself had written at or before a seq, from an id on and in the order of the ids: the
-- last operation on it. The heads name the entities, so that the cost is theirs and not that of the history.
SELECT id, op FROM (
    SELECT h.id AS id, (
        SELECT r.op FROM revision AS r
        WHERE r.branch = h.branch AND r.id = h.id AND r.seq <= ?2 ORDER BY r.seq DESC, r.op_index DESC LIMIT 1
    ) AS op
    FROM head AS h WHERE h.branch = ?1 AND h.id >= ?3
) WHERE op IS NOT NULL ORDER BY id

-- name: early_words
-- The same, where a branch had written little by then: the log names the entities, however many there are now.
SELECT t.id, (
    SELECT r.op FROM revision AS r
    WHERE r.branch = ?1 AND r.id = t.id AND r.seq <= ?2 ORDER BY r.seq DESC, r.op_index DESC LIMIT 1
) FROM (SELECT DISTINCT id FROM revision WHERE branch = ?1 AND seq <= ?2 AND +id >= ?3) AS t ORDER BY t.id

-- name: count_heads
-- How many entities a branch has from an id on, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM head WHERE branch = ?1 AND id >= ?2 LIMIT ?3)

-- name: count_written
-- How many revisions a branch has at or before a seq, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM revision WHERE branch = ?1 AND seq <= ?2 LIMIT ?3)

-- name: lift_seq
-- Only upwards: a restored space must never hand out a seq again.
UPDATE kernel_sequence SET value = max(value, ?1) WHERE name = 'seq_floor'

-- name: seed_seq
INSERT OR IGNORE INTO kernel_sequence (name, value) VALUES ('seq_floor', 0)

-- name: verify_commits
-- As bytes: damaged text may be no text any more, and must be seen all the same.
SELECT
    seq, CAST(branch AS BLOB), CAST(session_id AS BLOB), local_seq, CAST(invocation_ref AS BLOB),
    CAST(authorization_ref AS BLOB), CAST(original AS BLOB), CAST(created_at AS BLOB), CAST(resolution AS BLOB)
FROM "commit" WHERE seq >= ?1 AND seq < ?2 ORDER BY seq

-- name: verify_revisions
SELECT
    CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(op AS BLOB), CAST(data AS BLOB), commit_seq
FROM revision WHERE commit_seq = ? ORDER BY op_index

-- name: revisions_as_text
-- The same, as they were written.
SELECT branch, id, seq, op_index, op, data, commit_seq FROM revision WHERE commit_seq = ? ORDER BY op_index

-- name: verify_lines
-- Which branch each commit belongs to, with the request where it looks like the birth or the end of a branch.
SELECT seq, CAST(branch AS BLOB), CASE WHEN instr(original, '"cmd":"branch/') THEN CAST(original AS BLOB) END
FROM "commit" WHERE seq >= ?1 AND seq < ?2 ORDER BY seq

-- name: verify_branches
SELECT CAST(name AS BLOB), CAST(parent_branch AS BLOB), fork_seq, created_seq, head_seq, CAST(status AS BLOB)
FROM branch

-- name: verify_births
-- When each branch was made, and when the commit that made it was; the default branch is as old as the file.
SELECT CAST(b.name AS BLOB), CAST(b.created_at AS BLOB), CAST(coalesce(
    (SELECT c.created_at FROM "commit" AS c WHERE c.seq = b.created_seq),
    (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', m.value) FROM kernel_meta AS m WHERE m.key = 'created_at')
) AS BLOB)
FROM branch AS b

-- name: verify_blobs
SELECT CAST(hash AS BLOB), CAST(data AS BLOB), typeof(data), size, CAST(content_type AS BLOB), CAST(created_at AS BLOB)
FROM blob_store WHERE hash >= ?1 AND hash < ?2 ORDER BY hash

-- name: verify_reserved
SELECT 'invocation', CAST(ref AS BLOB) FROM invocation UNION ALL SELECT 'authorization', CAST(ref AS BLOB) FROM authorization

-- name: verify_seqs
SELECT seq FROM "commit" WHERE seq >= ?1 AND seq < ?2 ORDER BY seq

-- name: verify_floor
-- The seq up to which a restore may have left numbers out.
SELECT value FROM kernel_sequence WHERE name = 'seq_floor'

-- name: verify_strays
-- Revisions whose commit is not there, or that carry two different seqs.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, commit_seq, seq = commit_seq FROM revision AS r
WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4)
    AND (seq <> commit_seq OR NOT EXISTS (SELECT 1 FROM "commit" AS c WHERE c.seq = r.commit_seq))

-- name: verify_heads
-- Heads that do not point at the newest revision of their entity, and entities without a head.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB) FROM head AS h
WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4) AND (NOT EXISTS (
    SELECT 1 FROM revision AS r
    WHERE r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index
) OR EXISTS (
    SELECT 1 FROM revision AS r
    WHERE r.branch = h.branch AND r.id = h.id AND (r.seq, r.op_index) > (h.seq, h.op_index)
))
UNION
SELECT CAST(branch AS BLOB), CAST(id AS BLOB) FROM (
    SELECT DISTINCT branch, id FROM revision WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4)
) AS r
WHERE NOT EXISTS (SELECT 1 FROM head AS h WHERE h.branch = r.branch AND h.id = r.id)

-- name: verify_operations
-- The log after a position, in the order in which it is replayed, without the commits from ?7 to ?8.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(op AS BLOB), CAST(data AS BLOB) FROM revision
WHERE (branch, id, seq, op_index) > (?1, ?2, ?3, ?4) AND (branch, id) < (?5, ?6) AND seq NOT BETWEEN ?7 AND ?8
ORDER BY branch, id, seq, op_index

-- name: verify_snapshots
-- The snapshots in the same order, with the digest of those that the log begins with.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, CAST(value AS BLOB), (
    SELECT CAST(b.digest AS BLOB) FROM gc_base AS b WHERE b.branch = s.branch AND b.id = s.id AND b.seq = s.seq
)
FROM snapshot AS s
WHERE (branch, id, seq) >= (?1, ?2, ?3) AND (branch, id) < (?4, ?5) AND seq NOT BETWEEN ?6 AND ?7
ORDER BY branch, id, seq

-- name: verify_metadata
-- What is said about blobs that are not there. The name of such an entity ends with the hash of the blob.
SELECT CAST(h.branch AS BLOB), CAST(h.id AS BLOB)
FROM head AS h JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index
WHERE (h.branch, h.id) >= (?1, ?2) AND (h.branch, h.id) < (?3, ?4) AND h.id LIKE 'urn:blob-meta:%' AND r.op <> 'delete'
    AND NOT EXISTS (SELECT 1 FROM blob_store AS b WHERE b.hash = substr(h.id, 15))

-- name: newest_rows
-- For each of many entities (a JSON array of ids): the newest row of one branch up to a seq. A patch comes without its text.
SELECT each.value, r.seq, r.op, iif(r.op = 'patch', 'null', coalesce(r.data, 'null'))
FROM json_each(?3) AS each
CROSS JOIN revision AS r ON r.branch = ?1 AND r.id = each.value AND (r.seq, r.op_index) = (
    SELECT n.seq, n.op_index FROM revision AS n WHERE n.branch = ?1 AND n.id = each.value AND n.seq <= ?2
    ORDER BY n.seq DESC, n.op_index DESC LIMIT 1
)

-- name: replays
-- For each of many entities (a JSON array of ids): what one branch says of it up to a seq, from the newest snapshot on, or
-- from the newest set or delete if that is newer. All of an entity is one text of JSON, [how many, [seq, op, data], ...],
-- since a row costs the reader more than SQLite. The seq of the snapshot comes along; what the log has at that very seq
-- does too, so that there is always a last word.
WITH wanted (id, since) AS MATERIALIZED (
    SELECT each.value, (
        SELECT coalesce(max(s.seq), 0) FROM snapshot AS s WHERE s.branch = ?1 AND s.id = each.value AND s.seq <= ?2
    ) FROM json_each(?3) AS each
)
SELECT wanted.id, wanted.since, (
    SELECT '[' || count(*) || ',' || group_concat('[' || seq || ',"' || op || '",' || coalesce(data, 'null') || ']') || ']'
    FROM (
        SELECT r.seq, r.op, r.data FROM revision AS r
        WHERE r.branch = ?1 AND r.id = wanted.id AND r.seq <= ?2 AND r.seq >= coalesce(
            (SELECT w.seq FROM revision AS w
             WHERE w.branch = ?1 AND w.id = wanted.id AND w.seq > wanted.since AND w.seq <= ?2 AND w.op <> 'patch'
             ORDER BY w.seq DESC LIMIT 1),
            wanted.since)
        ORDER BY r.seq, r.op_index
    )
) FROM wanted

-- name: snapshots_at
-- The snapshots that an array of pairs [id, seq] names.
SELECT s.id, s.value
FROM (SELECT value ->> 0 AS id, value ->> 1 AS seq FROM json_each(?2)) AS wanted
CROSS JOIN snapshot AS s ON s.branch = ?1 AND s.id = wanted.id AND s.seq = wanted.seq

-- name: ids_touched
-- The entities that one branch itself wrote beyond a seq and up to another.
SELECT DISTINCT id FROM revision WHERE branch = ?1 AND seq > ?2 AND seq <= ?3

-- name: seqs_touching
-- The commits of one branch beyond a seq and up to another that changed an entity: one of a JSON array of ids, or any
-- when that is NULL.
SELECT DISTINCT seq FROM revision
WHERE branch = ?1 AND seq > ?2 AND seq <= ?3 AND (?4 IS NULL OR id IN (SELECT value FROM json_each(?4)))
ORDER BY seq LIMIT ?5

-- name: merges
-- How the requests begin that merged another branch into one, up to a seq, newest first. The field "merge" comes early in
-- the text of a request, since its keys are sorted; some that only look like a merge may come along. The index
-- idx_commit_merge has the same condition; without its name SQLite would look at every commit of the branch.
SELECT seq, substr(original, 1, 2000) FROM "commit" INDEXED BY idx_commit_merge
WHERE branch = ?1 AND seq <= ?2 AND instr(substr(original, 1, 300), ',"merge":{') > 0
ORDER BY seq DESC LIMIT ?3

-- name: newest_change
-- The newest commit of one branch at or before a seq that wrote an entity or is a merge; 0 if there is none. A merge that
-- wrote nothing has no revisions. The birth and the end of the branch have neither.
SELECT max(
    coalesce((SELECT seq FROM revision WHERE branch = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1), 0),
    coalesce((
        SELECT seq FROM "commit" INDEXED BY idx_commit_merge
        WHERE branch = ?1 AND seq <= ?2 AND instr(substr(original, 1, 300), ',"merge":{') > 0
        ORDER BY seq DESC LIMIT 1
    ), 0)
)

-- name: snapshot_keys
-- A page of the snapshots, in order, after one of them. Those with which the log begins are not derived, and stay.
SELECT branch, id, seq FROM snapshot AS s WHERE (branch, id, seq) > (?1, ?2, ?3) AND NOT EXISTS (
    SELECT 1 FROM gc_base AS b WHERE b.branch = s.branch AND b.id = s.id AND b.seq = s.seq
) ORDER BY branch, id, seq LIMIT ?4

-- name: delete_snapshot
DELETE FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq = ?3 AND NOT EXISTS (
    SELECT 1 FROM gc_base AS b WHERE b.branch = ?1 AND b.id = ?2 AND b.seq = ?3
)

-- name: head_keys
-- A page of the heads, in order, after one of them.
SELECT branch, id, seq FROM head WHERE (branch, id) > (?1, ?2) ORDER BY branch, id LIMIT ?3

-- name: replay_depth
-- How many revisions a read of an entity on one branch at a seq goes through, from the newest snapshot on, or from the
-- newest set or delete if that is newer.
SELECT count(*) FROM revision WHERE branch = ?1 AND id = ?2 AND seq <= ?3 AND seq > coalesce(
    (SELECT seq FROM revision
     WHERE branch = ?1 AND id = ?2 AND seq <= ?3 AND op <> 'patch'
       AND seq > coalesce((SELECT max(seq) FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq <= ?3), 0)
     ORDER BY seq DESC LIMIT 1),
    (SELECT max(seq) FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq <= ?3),
    0)
