-- Queries of gc, and of the readers that depend on it, in a space of revisions. A space of facts answers most of
-- these word for word, through its view `revision`; the others stand in its own queries.

-- name: horizon
SELECT seq FROM gc_horizon

-- name: readable
-- The horizon, and whether a branch can be read at a seq. Before the first commit there is nothing, ever.
SELECT h.seq, ?2 >= h.seq OR ?2 = 0 OR EXISTS (SELECT 1 FROM gc_point WHERE branch = ?1 AND seq = ?2)
FROM gc_horizon AS h

-- name: lost_revision
-- The newest revision of an entity that was taken from one branch beyond a seq and up to another.
SELECT max(lost_seq) FROM gc_gap WHERE branch = ?1 AND id = ?2 AND lost_seq > ?3 AND lost_seq <= ?4

-- name: newest_base
-- The newest snapshot at or before a seq with which the log of an entity begins.
SELECT s.seq, s.value FROM gc_base AS b
CROSS JOIN snapshot AS s ON s.branch = b.branch AND s.id = b.id AND s.seq = b.seq
WHERE b.branch = ?1 AND b.id = ?2 AND b.seq <= ?3 ORDER BY b.seq DESC LIMIT 1

-- The policy

-- name: gc_policy
SELECT policy FROM gc_policy

-- name: set_gc_policy
INSERT INTO gc_policy (one, policy) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE
SET policy = excluded.policy, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')

-- name: drop_gc_policy
DELETE FROM gc_policy

-- A collection under way

-- name: gc_state
SELECT seq, requests_seq, loose, run FROM gc_horizon

-- name: begin_run
-- Only upwards: what was given up does not come back.
UPDATE gc_horizon SET seq = max(seq, ?1), run = ?2

-- name: note_run
UPDATE gc_horizon SET run = ?1

-- name: requests_done
UPDATE gc_horizon SET requests_seq = max(requests_seq, ?1)

-- name: loosen
UPDATE gc_horizon SET loose = loose + ?1

-- name: tighten
-- What was dropped while orphans were looked for is left for the next time.
UPDATE gc_horizon SET loose = loose - ?1

-- name: gc_points
SELECT branch, seq FROM gc_point ORDER BY branch, seq

-- name: forget_points
DELETE FROM gc_point

-- name: insert_point
INSERT INTO gc_point (branch, seq) VALUES (?1, ?2)

-- name: all_merges
-- How every request begins that merged another branch into one; see `merges`.
SELECT branch, seq, substr(original, 1, 2000) FROM "commit"
WHERE instr(substr(original, 1, 300), ',"merge":{') > 0 ORDER BY branch, seq

-- name: forks_or_merges_since
-- Whether a branch was made, or something merged, beyond a seq.
SELECT EXISTS (SELECT 1 FROM branch WHERE created_seq > ?1) OR EXISTS (
    SELECT 1 FROM "commit" WHERE seq > ?1 AND instr(substr(original, 1, 300), ',"merge":{') > 0
)

-- The log below the horizon

-- name: window_page
-- The entities that one branch wrote up to a seq, commit by commit, after a place; but only where it had written them
-- before, since nothing else can have become superfluous.
SELECT DISTINCT seq, id FROM revision AS r
WHERE branch = ?1 AND (seq, id) > (?2, ?3) AND seq <= ?4 AND EXISTS (
    SELECT 1 FROM revision AS e
    WHERE e.branch = r.branch AND e.id = r.id AND (e.seq, e.op_index) < (r.seq, r.op_index)
) ORDER BY seq, id LIMIT ?5

-- name: entity_rows
-- The log of an entity on one branch up to a seq, each row with its size, and whether the log begins with it.
SELECT seq, op_index, op, coalesce(octet_length(data), 0), EXISTS (
    SELECT 1 FROM gc_base AS b WHERE b.branch = ?1 AND b.id = ?2 AND b.seq = r.seq
)
FROM revision AS r WHERE branch = ?1 AND id = ?2 AND seq <= ?3 ORDER BY seq, op_index

-- name: doomed_rows
-- The rows of an entity on one branch between two of them, newest first, as the seals cover them.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(op AS BLOB), CAST(data AS BLOB), commit_seq
FROM revision WHERE branch = ?1 AND id = ?2 AND (seq, op_index) > (?3, ?4) AND (seq, op_index) < (?5, ?6)
ORDER BY seq DESC, op_index DESC LIMIT ?7

-- name: doomed_seqs
-- The commits of these rows, in the same order.
SELECT seq FROM revision WHERE branch = ?1 AND id = ?2 AND (seq, op_index) > (?3, ?4) AND (seq, op_index) < (?5, ?6)
ORDER BY seq DESC, op_index DESC LIMIT ?7

-- name: snapshots_between
-- The snapshots of an entity on one branch from a seq to another: their sizes, and the values that they refer to.
SELECT seq, octet_length(value), NULL FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq >= ?3 AND seq <= ?4

-- name: remove_snapshot
-- Also one with which the log began.
DELETE FROM snapshot WHERE branch = ?1 AND id = ?2 AND seq = ?3

-- name: insert_base
INSERT OR REPLACE INTO gc_base (branch, id, seq, digest) VALUES (?1, ?2, ?3, ?4)

-- name: delete_base
DELETE FROM gc_base WHERE branch = ?1 AND id = ?2 AND seq = ?3

-- name: insert_gap
-- Rows are taken newest first, so the first to be taken before a row is the newest.
INSERT INTO gc_gap (branch, id, seq, op_index, lost_seq) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (branch, id, seq, op_index) DO UPDATE SET lost_seq = max(lost_seq, excluded.lost_seq)

-- name: delete_gap
DELETE FROM gc_gap WHERE branch = ?1 AND id = ?2 AND seq = ?3 AND op_index = ?4

-- name: gap
SELECT lost_seq FROM gc_gap WHERE branch = ?1 AND id = ?2 AND seq = ?3 AND op_index = ?4

-- Seals

-- name: seal
SELECT seal FROM gc_seal WHERE seq = ?1

-- name: write_seal
INSERT OR REPLACE INTO gc_seal (seq, seal) VALUES (?1, ?2)

-- name: sealed_commit
SELECT seq, CAST(branch AS BLOB), CAST(session_id AS BLOB), local_seq, CAST(invocation_ref AS BLOB),
    CAST(authorization_ref AS BLOB), CAST(original AS BLOB), CAST(created_at AS BLOB), CAST(resolution AS BLOB)
FROM "commit" WHERE seq = ?1

-- name: sealed_rows
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq, op_index, CAST(op AS BLOB), CAST(data AS BLOB), commit_seq
FROM revision WHERE commit_seq = ?1

-- Requests

-- name: requests_page
-- The long requests beyond a seq and up to another, without births and ends of branches, and without merges.
SELECT seq, branch, local_seq, original FROM "commit"
WHERE seq > ?1 AND seq <= ?2 AND length(original) >= ?3 AND instr(substr(original, 1, 300), ',"merge":{') = 0
ORDER BY seq LIMIT ?4

-- name: shorten_request
UPDATE "commit" SET original = ?2 WHERE seq = ?1

-- Blobs

-- name: blobs_page
-- A page of the blobs that were last put before a moment.
SELECT hash FROM blob_store WHERE hash > ?1 AND created_at < ?2 ORDER BY hash LIMIT ?3

-- name: old_blob
SELECT length(data) FROM blob_store WHERE hash = ?1 AND created_at < ?2

-- name: delete_blob
DELETE FROM blob_store WHERE hash = ?1

-- name: put_long_ago
SELECT created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?2) FROM blob_store WHERE hash = ?1

-- name: touch_blob
-- A blob that exists was put again: it counts as new.
UPDATE blob_store SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE hash = ?1 AND created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?2)

-- name: says_something
-- Whether an entity has anything but deletions left on a branch.
SELECT EXISTS (SELECT 1 FROM revision WHERE branch = ?1 AND id = ?2 AND op <> 'delete')

-- name: texts_page
-- A page of the log in the order of its key, after a place.
SELECT branch, id, seq, op_index, data FROM revision
WHERE (branch, id, seq, op_index) > (?1, ?2, ?3, ?4) AND op <> 'delete'
ORDER BY branch, id, seq, op_index LIMIT ?5

-- name: snapshots_page
SELECT branch, id, seq, value FROM snapshot WHERE (branch, id, seq) > (?1, ?2, ?3) ORDER BY branch, id, seq LIMIT ?4

-- name: seqs_since
SELECT seq FROM "commit" WHERE seq > ?1

-- The questions of verification

-- name: verify_seals
-- Seals of commits that are not there, or from which nothing can have been taken.
SELECT seq FROM gc_seal
WHERE seq > (SELECT seq FROM gc_horizon) OR seq NOT IN (SELECT seq FROM "commit")

-- name: verify_gaps
-- Rows before which something was taken: whether they are there, and whether they can be read without it.
SELECT CAST(g.branch AS BLOB), CAST(g.id AS BLOB), g.seq, g.op_index, g.lost_seq, (SELECT seq FROM gc_horizon),
    CAST((SELECT op FROM revision AS r WHERE r.branch = g.branch AND r.id = g.id AND r.seq = g.seq
          AND r.op_index = g.op_index) AS BLOB),
    EXISTS (SELECT 1 FROM gc_base AS b WHERE b.branch = g.branch AND b.id = g.id AND b.seq = g.seq),
    EXISTS (SELECT 1 FROM gc_seal AS s WHERE s.seq = g.lost_seq)
FROM gc_gap AS g WHERE (g.branch, g.id) >= (?1, ?2) AND (g.branch, g.id) < (?3, ?4)

-- name: verify_points
-- Points that cannot have been kept: of branches that are not there, or not below the horizon.
SELECT CAST(branch AS BLOB), seq FROM gc_point
WHERE seq <= 0 OR seq >= (SELECT seq FROM gc_horizon) OR branch NOT IN (SELECT name FROM branch)

-- name: verify_forks
-- Forks below the horizon that were not kept.
SELECT CAST(parent_branch AS BLOB), fork_seq FROM branch AS b
WHERE fork_seq > 0 AND fork_seq < (SELECT seq FROM gc_horizon) AND NOT EXISTS (
    SELECT 1 FROM gc_point AS p WHERE p.branch = b.parent_branch AND p.seq = b.fork_seq
)

-- name: verify_bases
-- Snapshots with which the log begins, and are not there.
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), seq FROM gc_base AS b WHERE NOT EXISTS (
    SELECT 1 FROM snapshot AS s WHERE s.branch = b.branch AND s.id = b.id AND s.seq = b.seq
)
