-- What full-text indexes are asked. {table} is the table of an index, {columns} its columns, {marks} a parameter for each.

-- name: create
CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5(
    c0, c1, c2, c3, content='', contentless_delete=1, tokenize='ascii'
)

-- name: drop
DROP TABLE IF EXISTS {table}

-- name: next_doc
SELECT coalesce(max(doc), 0) + 1 FROM index_text

-- name: insert_words
INSERT INTO {table} (rowid, c0, c1, c2, c3) VALUES (?, ?, ?, ?, ?)

-- name: delete_words
DELETE FROM {table} WHERE rowid = ?

-- name: insert_version
INSERT INTO index_text (doc, ix, branch, id, from_seq, to_seq, digest) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: end_version
UPDATE index_text SET to_seq = ?4 WHERE ix = ?1 AND branch = ?2 AND id = ?3 AND to_seq IS NULL

-- name: live_docs
SELECT doc FROM index_text WHERE ix = ?1 AND branch = ?2 AND id = ?3 AND to_seq IS NULL

-- name: entity_docs
SELECT doc FROM index_text WHERE ix = ?1 AND branch = ?2 AND id = ?3

-- name: delete_version
DELETE FROM index_text WHERE doc = ?

-- name: delete_versions
DELETE FROM index_text WHERE doc IN (SELECT doc FROM index_text WHERE ix = ?1 LIMIT ?2)

-- name: past_versions
-- A page of the versions that ended, in order, after one of them.
SELECT doc, branch, from_seq, to_seq FROM index_text
WHERE ix = ?1 AND doc > ?2 AND to_seq IS NOT NULL ORDER BY doc LIMIT ?3

-- name: versions
-- The versions of an entity of a branch, oldest first.
SELECT doc, from_seq, to_seq, digest FROM index_text WHERE ix = ?1 AND branch = ?2 AND id = ?3 ORDER BY from_seq

-- name: without_entity
SELECT DISTINCT branch, id FROM index_text AS v
WHERE ix = ?1 AND NOT EXISTS (SELECT 1 FROM head AS h WHERE h.branch = v.branch AND h.id = v.id)

-- name: has_words
SELECT EXISTS (SELECT 1 FROM {table} WHERE {table} MATCH ?1 AND rowid = ?2)

-- name: stray_words
-- Rows of words without a version.
SELECT id FROM {table}_docsize WHERE id NOT IN (SELECT doc FROM index_text WHERE ix = ?1)

-- Hits. ?1 is the expression of FTS5, ?2 a JSON array of the branches of a chain, nearest first, each with the seq up to which
-- it is visible. A version counts where its branch is, unless a nearer branch has written its entity.

-- name: hits
SELECT v.id AS id, v.from_seq AS from_seq, {score} AS score
FROM {table} AS t
CROSS JOIN index_text AS v ON v.doc = t.rowid
JOIN json_each(?2) AS l ON (l.value ->> 0) = v.branch
WHERE {table} MATCH ?1
    AND v.from_seq <= (l.value ->> 1) AND (v.to_seq IS NULL OR v.to_seq > (l.value ->> 1))
    AND NOT EXISTS (
        SELECT 1 FROM json_each(?2) AS n
        CROSS JOIN revision AS r ON r.branch = (n.value ->> 0) AND r.id = v.id AND r.seq <= (n.value ->> 1)
        WHERE n.key < l.key
    ) {allowed}

-- name: allowed
-- Only entities of a JSON array of ids.
AND v.id IN (SELECT value FROM json_each(?5))

-- name: by_score
WITH hits AS MATERIALIZED ({hits})
SELECT id, score, (SELECT count(*) FROM hits) FROM hits ORDER BY score, id LIMIT ?3 OFFSET ?4

-- name: by_age
WITH hits AS MATERIALIZED ({hits})
SELECT id, score, (SELECT count(*) FROM hits) FROM hits ORDER BY from_seq DESC, id LIMIT ?3 OFFSET ?4

-- name: ids
SELECT id FROM ({hits}) WHERE id > ?3 ORDER BY id
