-- Statements of a connection for queries of users. Names of views and files are generated.

-- name: attach
ATTACH ?1 AS {schema}

-- name: tables
-- The tables and views of an attached file.
SELECT name FROM {schema}.sqlite_schema WHERE type IN ('table', 'view')

-- name: view
CREATE TEMP VIEW "{name}" ({columns}) AS {body}

-- name: all_rows
SELECT * FROM "{name}"

-- name: nothing
SELECT {columns} WHERE 0
