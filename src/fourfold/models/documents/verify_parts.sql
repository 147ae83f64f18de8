-- Keys that divide a large space into parts of about the same size, for verification.

-- name: seqs
-- Seqs are dense, so equal distances are equal parts. ?1 is the number of parts.
WITH RECURSIVE part (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM part WHERE number + 1 < ?1),
    bound AS (SELECT coalesce(max(seq), 0) AS newest FROM "commit")
SELECT 1 + number * newest / ?1 FROM part, bound WHERE ?1 > 1

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
