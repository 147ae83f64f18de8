-- What publishing asks of any database. {table} and {columns} are names that the model gives, quoted.

-- name: tables
-- How far this database is published, and the changes since that no position shows. There are none before the first
-- publication, so that a store that publishes nothing pays nothing.
CREATE TABLE IF NOT EXISTS published (
    one        INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    node       TEXT    NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    version    TEXT,
    manifest   BLOB,
    state      TEXT    NOT NULL DEFAULT '',
    intent     TEXT
);
CREATE TABLE IF NOT EXISTS published_change (
    change     INTEGER NOT NULL PRIMARY KEY,
    table_name TEXT    NOT NULL,
    row_key    TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS published_change_of_table ON published_change (table_name, change);

-- name: is_published
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'published')

-- name: columns
SELECT name, upper(type) FROM pragma_table_info(?1) ORDER BY cid

-- name: defaults
-- The defaults of columns, as expressions.
SELECT name, dflt_value FROM pragma_table_info(?1) WHERE dflt_value IS NOT NULL

-- name: evaluate
SELECT {expression}

-- name: begin
INSERT OR IGNORE INTO published (one, node) VALUES (1, ?1)

-- name: published
SELECT node, generation, version, manifest, state, intent FROM published

-- name: intend
UPDATE published SET intent = ?1

-- name: adopt
-- The manifest of format 1 that this database has written last.
UPDATE published SET manifest = ?1

-- name: record
UPDATE published SET generation = ?1, version = ?2, manifest = ?3, state = ?4, intent = NULL

-- name: forget_changes
-- Some of the changes up to ?1; those that remain are published once more.
DELETE FROM published_change WHERE change IN (
    SELECT change FROM published_change WHERE change <= ?1 ORDER BY change LIMIT ?2
)

-- name: forget_all_changes
DELETE FROM published_change

-- name: last_change
SELECT coalesce(max(change), 0) FROM published_change

-- name: count_changes
SELECT count(DISTINCT table_name || row_key) FROM published_change

-- name: trigger
-- {row} is new or old; {key} the columns of the key from it, as an array.
CREATE TRIGGER IF NOT EXISTS {name} AFTER {event} ON {table}
BEGIN
    INSERT INTO published_change (table_name, row_key) VALUES ({literal}, json_array({key}));
END

-- name: all_rows
SELECT {columns} FROM {table}

-- name: all_rows_by_position
SELECT {columns} FROM {table} ORDER BY {position}

-- name: new_rows
SELECT {columns} FROM {table} WHERE {position} > ?1 ORDER BY {position}

-- name: changed_rows
-- Those that are there. A row that was changed twice, or is also new, comes twice, and is the same each time.
SELECT {columns} FROM published_change AS c CROSS JOIN {table} AS t ON {match}
WHERE c.table_name = {literal} AND c.change <= ?1

-- name: gone_rows
-- The keys of those that are not there any more.
SELECT {keys} FROM published_change AS c
WHERE c.table_name = {literal} AND c.change <= ?1 AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {match})

-- name: put
-- How rows are put: in the place of those that have their keys.
INSERT OR REPLACE

-- name: delete_row
DELETE FROM {table} WHERE {match}

-- name: delete_all
DELETE FROM {table}

-- name: count_some
-- How many rows a query has, up to ?2. {rows} may use ?1.
SELECT count(*) FROM (SELECT 1 FROM ({rows}) LIMIT ?2)

-- name: greatest
SELECT coalesce(max({position}), 0) FROM {table}

-- name: has_object
SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2

-- name: kernel_meta
-- What a database is, without when it was last looked after.
SELECT key, value FROM kernel_meta WHERE key NOT GLOB 'last_*' ORDER BY key

-- name: sequences
SELECT name, value FROM kernel_sequence ORDER BY name

-- name: restored
-- A database that was made from what is published goes on from there.
INSERT INTO published (one, node, generation, version, manifest, state) VALUES (1, ?1, ?2, ?3, ?4, ?5)
ON CONFLICT (one) DO UPDATE SET generation = excluded.generation, version = excluded.version,
    manifest = excluded.manifest, state = excluded.state, intent = NULL
