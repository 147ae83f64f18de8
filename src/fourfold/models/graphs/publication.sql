-- What publishing asks of a graph database.

-- name: schema
-- How the tables of the apps are made, tables before their indexes. What publishing adds is not among them.
SELECT type, name, sql FROM sqlite_schema
WHERE tbl_name GLOB 'app_[0-9]*' AND sql IS NOT NULL AND type IN ('table', 'index')
ORDER BY type DESC, name

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'app_[0-9]*' ORDER BY name

-- Ids and global_seqs of an app's table grow together, and no index of it has the global_seq.

-- name: all_rows
SELECT {columns} FROM app_{n}_{kind} AS t ORDER BY t.id

-- name: new_rows
SELECT {columns} FROM app_{n}_{kind} AS t
WHERE t.id >= (
    SELECT first_id FROM seq_row WHERE app_id = {n} AND kind = {bit} AND global_seq > ?1 ORDER BY global_seq LIMIT 1
) ORDER BY t.id

-- name: greatest
SELECT global_seq FROM app_{n}_{kind} ORDER BY id DESC LIMIT 1
