-- name: raw
-- The rows of a raw table in one file, as a part of its view.
SELECT {columns} FROM ({query}){conditions}
