-- name: raw
-- The rows of a raw table in one file, as a part of its view.
SELECT {columns} FROM ({query}){conditions}

-- name: restricted
-- The same, restricted to some names. LIMIT keeps SQLite from evaluating conditions of the user's query on other rows:
-- an error in one of them would reveal a value.
SELECT * FROM ({raw} LIMIT -1)
