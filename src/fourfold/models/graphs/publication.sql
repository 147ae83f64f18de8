-- What publishing asks of a graph database.

-- name: schema
-- How the tables of the apps are made, tables before their indexes. What publishing adds is not among them.
SELECT type, name, sql FROM sqlite_schema
WHERE tbl_name GLOB 'app_[0-9]*' AND sql IS NOT NULL AND type IN ('table', 'index')
ORDER BY type DESC, name

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'app_[0-9]*' ORDER BY name
