-- What indexes of vectors are asked. {table} is the table of an index. It is a plain table: nothing but a search needs the
-- functions of sqlite-vec.

-- name: create
-- An entity of a branch had this vector from `from_seq` on, and no longer at `to_seq`; NULL if it has it now.
CREATE TABLE IF NOT EXISTS {table} (
    doc      INTEGER NOT NULL PRIMARY KEY,
    branch   TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    from_seq INTEGER NOT NULL,
    to_seq   INTEGER,
    vector   BLOB    NOT NULL,
    UNIQUE (branch, id, from_seq)
)

-- name: drop
DROP TABLE IF EXISTS {table}

-- name: exists
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?

-- name: insert
INSERT INTO {table} (branch, id, from_seq, to_seq, vector) VALUES (?, ?, ?, ?, ?)

-- name: end
UPDATE {table} SET to_seq = ?3 WHERE branch = ?1 AND id = ?2 AND to_seq IS NULL

-- name: delete_live
DELETE FROM {table} WHERE branch = ?1 AND id = ?2 AND to_seq IS NULL

-- name: delete_entity
DELETE FROM {table} WHERE branch = ?1 AND id = ?2

-- name: delete
DELETE FROM {table} WHERE doc = ?

-- name: past
-- A page of the vectors that ended, in order, after one of them.
SELECT doc, branch, from_seq, to_seq FROM {table} WHERE doc > ?1 AND to_seq IS NOT NULL ORDER BY doc LIMIT ?2

-- name: versions
-- The vectors of an entity of a branch, oldest first.
SELECT vector, from_seq, to_seq FROM {table} WHERE branch = ?1 AND id = ?2 ORDER BY from_seq

-- name: without_entity
SELECT DISTINCT branch, id FROM {table} AS v
WHERE NOT EXISTS (SELECT 1 FROM head AS h WHERE h.branch = v.branch AND h.id = v.id)

-- name: nearest
-- The entities by the cosine of their vectors and ?1, negative as BM25 is. ?2 is a JSON array of the branches of a chain,
-- nearest first, each with the seq up to which it is visible. A vector counts where its branch is, unless a nearer branch has
-- written its entity.
WITH links AS MATERIALIZED (
    SELECT key AS depth, value ->> 0 AS branch, value ->> 1 AS cap FROM json_each(?2)
),
hits AS MATERIALIZED (
    SELECT v.id AS id, vec_distance_cosine(v.vector, ?1) - 1.0 AS score
    FROM links AS l CROSS JOIN {table} AS v
    WHERE +v.branch = l.branch AND length(v.vector) = length(?1)
        AND v.from_seq <= l.cap AND (v.to_seq IS NULL OR v.to_seq > l.cap)
        AND NOT EXISTS (
            SELECT 1 FROM links AS n CROSS JOIN revision AS r ON r.branch = n.branch AND r.id = v.id AND r.seq <= n.cap
            WHERE n.depth < l.depth
        ) {allowed}
)
SELECT id, score, (SELECT count(*) FROM hits) FROM hits ORDER BY score, id LIMIT ?3 OFFSET ?4
