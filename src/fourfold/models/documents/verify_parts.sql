-- Keys that divide a large space into parts of about the same size, for verification.

-- name: seqs
-- The size of a request is about what its commit costs to check. ?1 is the number of parts.
WITH sized AS (SELECT seq, sum(coalesce(octet_length(original), 0) + 100) OVER (ORDER BY seq) AS size FROM "commit"),
    part AS (SELECT seq, size * ?1 / (SELECT max(size) + 1 FROM sized) AS number FROM sized)
SELECT min(seq) FROM part WHERE number > 0 GROUP BY number ORDER BY number

-- name: newest
SELECT max(seq) FROM "commit"

-- name: entity_count
SELECT count(*) FROM head

-- name: entities
-- Every so many entities one. They come in the order of their key, so nothing has to be sorted or kept.
SELECT branch, id FROM (SELECT branch, id, row_number() OVER (ORDER BY branch, id) AS number FROM head)
WHERE number % ?1 = 0

-- name: hash_count
SELECT count(*) FROM fact

-- name: hashes
SELECT hash FROM (SELECT hash, row_number() OVER (ORDER BY hash) AS number FROM fact) WHERE number % ?1 = 0

-- Keys in order with the number of rows that a rule reads for each, and the size of their data.

-- name: commit_sizes
SELECT seq, 1, coalesce(octet_length(original), 0) FROM "commit" WHERE seq >= ?1 AND seq < ?2 ORDER BY seq

-- name: entity_sizes
SELECT CAST(branch AS BLOB), CAST(id AS BLOB), count(*), 0 FROM revision
WHERE (branch, id) >= (?1, ?2) AND (branch, id) < (?3, ?4) GROUP BY branch, id ORDER BY branch, id

-- name: blob_sizes
SELECT CAST(hash AS BLOB), 1, coalesce(octet_length(data), 0) FROM blob_store
WHERE hash >= ?1 AND hash < ?2 ORDER BY hash

-- name: value_sizes
SELECT CAST(hash AS BLOB), 1, coalesce(octet_length(data), 0) FROM value WHERE hash >= ?1 AND hash < ?2 ORDER BY hash

-- name: fact_sizes
-- A hash of a fact is computed from several others.
SELECT CAST(hash AS BLOB), 4, 0 FROM fact WHERE hash >= ?1 AND hash < ?2 ORDER BY hash
