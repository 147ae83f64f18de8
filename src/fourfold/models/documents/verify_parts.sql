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
