-- How a table lies in a file.

-- name: table
-- Its definition, and whether it is one without rowids.
SELECT s.sql, l.wr FROM sqlite_schema AS s JOIN pragma_table_list(s.name) AS l
WHERE s.type = 'table' AND s.name = ?1 AND l.schema = 'main'

-- name: columns
-- Its columns in their order, and the place of each in the key, from 1 on.
SELECT name, pk, upper(type) FROM pragma_table_info(?1) ORDER BY cid
