-- What the indexes of a space are asked. The same for both kinds of history: `revision` is a view in a log of facts.

-- name: declarations
SELECT d.ix, d.name, d.kind, d.paths, d.options, coalesce(b.state, 'building'), b.error
FROM index_declaration AS d LEFT JOIN index_build AS b ON b.ix = d.ix ORDER BY d.name

-- name: next_ix
-- A number that neither an index nor the rest of a dropped one has.
SELECT 1 + max(coalesce((SELECT max(ix) FROM index_declaration), 0), coalesce((SELECT max(ix) FROM index_build), 0))

-- name: declare
INSERT INTO index_declaration (ix, name, kind, paths, options) VALUES (?, ?, ?, ?, ?)

-- name: renumber
UPDATE index_declaration SET ix = ?2 WHERE ix = ?1

-- name: undeclare
DELETE FROM index_declaration WHERE ix = ?

-- name: set_build
INSERT INTO index_build (ix, state, branch, id, error) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ix) DO UPDATE SET state = ?2, branch = ?3, id = ?4, error = ?5

-- name: build_of
SELECT state, branch, id FROM index_build WHERE ix = ?

-- name: has_entities
SELECT EXISTS (SELECT 1 FROM head)

-- name: heads_page
-- A page of the entities that branches wrote, in order, after one of them, with the seq of the newest row.
SELECT branch, id, seq FROM head WHERE (branch, id) > (?1, ?2) ORDER BY branch, id LIMIT ?3

-- name: head_seq
SELECT seq FROM head WHERE branch = ?1 AND id = ?2

-- name: own_heads
-- Which of many entities (a JSON array of ids) a branch itself wrote.
SELECT h.id FROM json_each(?2) AS wanted CROSS JOIN head AS h ON h.branch = ?1 AND h.id = wanted.value

-- name: dropped
-- Indexes that were dropped, and whose entries still exist.
SELECT ix FROM index_build WHERE ix NOT IN (SELECT ix FROM index_declaration) ORDER BY ix

-- name: delete_build
DELETE FROM index_build WHERE ix = ?

-- Entries

-- name: insert_live
INSERT OR IGNORE INTO index_live (ix, branch, value, id, from_seq) VALUES (?, ?, ?, ?, ?)

-- name: store_live
-- Of a build: the entry may have begun before the row that a commit wrote.
INSERT OR REPLACE INTO index_live (ix, branch, value, id, from_seq) VALUES (?, ?, ?, ?, ?)

-- name: store_past
INSERT OR REPLACE INTO index_past (ix, branch, value, id, from_seq, to_seq) VALUES (?, ?, ?, ?, ?, ?)

-- name: end_live
-- An entry ends: it is stored as one of the past. Without a row, the index is not built so far.
INSERT INTO index_past (ix, branch, value, id, from_seq, to_seq)
SELECT ix, branch, value, id, from_seq, ?5 FROM index_live WHERE ix = ?1 AND branch = ?2 AND value = ?3 AND id = ?4

-- name: delete_live
DELETE FROM index_live WHERE ix = ?1 AND branch = ?2 AND value = ?3 AND id = ?4

-- name: delete_live_rows
DELETE FROM index_live WHERE ix = ?1 AND (branch, value, id) IN (
    SELECT branch, value, id FROM index_live WHERE ix = ?1 LIMIT ?2
)

-- name: delete_past_rows
DELETE FROM index_past WHERE ix = ?1 AND (branch, value, id, to_seq) IN (
    SELECT branch, value, id, to_seq FROM index_past WHERE ix = ?1 LIMIT ?2
)

-- Queries. An entry holds at a seq from `from_seq` on and before `to_seq`. The bounds of a range are inclusive and exclusive.
-- {hidden} is nothing for the nearest branch of a chain, and for the others the condition of that name. ?6 are the branches
-- before them, a JSON array of pairs [branch, seq].

-- name: hidden
AND NOT EXISTS (
    SELECT 1 FROM json_each(?6) AS n
    CROSS JOIN revision AS r ON r.branch = (n.value ->> 0) AND r.id = e.id AND r.seq <= (n.value ->> 1)
)

-- name: live
SELECT value, id FROM index_live AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3
    AND (value, id) > (?7, ?8) AND value < ?5 {hidden}
ORDER BY value, id

-- name: live_descending
SELECT value, id FROM index_live AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3
    AND value >= ?4 AND (value, id) < (?7, ?8) {hidden}
ORDER BY value DESC, id DESC

-- name: count_live
SELECT count(*) FROM index_live AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND value >= ?4 AND value < ?5 {hidden}

-- name: groups_live
SELECT value, count(*) FROM index_live AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND value >= ?4 AND value < ?5 {hidden}
GROUP BY value ORDER BY value

-- name: past
SELECT value, id FROM index_past AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND to_seq > ?3
    AND (value, id) > (?7, ?8) AND value < ?5 {hidden}
ORDER BY value, id

-- name: past_descending
SELECT value, id FROM index_past AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND to_seq > ?3
    AND value >= ?4 AND (value, id) < (?7, ?8) {hidden}
ORDER BY value DESC, id DESC

-- name: count_past
SELECT count(*) FROM index_past AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND to_seq > ?3 AND value >= ?4 AND value < ?5 {hidden}

-- name: groups_past
SELECT value, count(*) FROM index_past AS e
WHERE ix = ?1 AND branch = ?2 AND from_seq <= ?3 AND to_seq > ?3 AND value >= ?4 AND value < ?5 {hidden}
GROUP BY value ORDER BY value

-- Checks

-- name: live_page
-- A page of the entries that hold now, in order, after one of them.
SELECT branch, value, id FROM index_live
WHERE ix = ?1 AND (branch, value, id) > (?2, ?3, ?4) ORDER BY branch, value, id LIMIT ?5

-- name: intervals
-- When an entity of a branch had a value: the ends, oldest first; NULL if it has it now.
SELECT from_seq, to_seq FROM index_past WHERE ix = ?1 AND branch = ?2 AND value = ?3 AND id = ?4
UNION ALL
SELECT from_seq, NULL FROM index_live WHERE ix = ?1 AND branch = ?2 AND value = ?3 AND id = ?4
ORDER BY 1

-- name: stored_entries
-- Everything that an index holds, entity by entity within a value.
SELECT branch, value, id, from_seq, NULL AS to_seq FROM index_live WHERE ix = ?1
UNION ALL
SELECT branch, value, id, from_seq, to_seq FROM index_past WHERE ix = ?1
ORDER BY 1, 2, 3, 4

-- name: past_page
-- A page of the past entries that ended at or before a seq, in order, after one of them.
SELECT branch, value, id, to_seq, from_seq FROM index_past
WHERE ix = ?1 AND (branch, value, id, to_seq) > (?2, ?3, ?4, ?5) ORDER BY branch, value, id, to_seq LIMIT ?6

-- name: delete_past
DELETE FROM index_past WHERE ix = ?1 AND branch = ?2 AND value = ?3 AND id = ?4 AND to_seq = ?5

-- name: entity_bases
-- The snapshots with which the log of an entity begins after a collection.
SELECT b.seq FROM gc_base AS b WHERE b.branch = ?1 AND b.id = ?2
