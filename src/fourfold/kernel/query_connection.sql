-- Statements of a connection for queries of users. Names of views and files are generated.

-- name: attach
ATTACH ?1 AS {schema}

-- name: tables
-- The tables and views of an attached file, and the statements of the views.
SELECT name, CASE type WHEN 'view' THEN sql END FROM {schema}.sqlite_schema WHERE type IN ('table', 'view')

-- name: view
CREATE TEMP VIEW "{name}" {columns} AS {body}

-- name: virtual_table
CREATE VIRTUAL TABLE temp."{name}" USING {module}

-- name: all_rows
SELECT * FROM "{name}"

-- name: nothing
SELECT {columns} WHERE 0
