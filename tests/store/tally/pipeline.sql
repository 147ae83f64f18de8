-- The tables of the tallies.

-- name: scan
SELECT {samples} {parts}

-- name: part
UNION ALL SELECT {columns} FROM ({query}) WHERE {conditions}

-- name: horizon
SELECT 0

-- name: whole_after
SELECT ?1 >= 0

-- name: votes
SELECT seq, choice, votes FROM vote
