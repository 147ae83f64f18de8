-- name: begin
-- Take the write lock at once, so that a writer does not fail half-way.
BEGIN IMMEDIATE

-- name: begin_read
-- SQLite fixes the state at the first read, so a read follows directly.
BEGIN DEFERRED

-- name: fix_snapshot
SELECT 1 FROM sqlite_schema LIMIT 1

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: savepoint
SAVEPOINT step

-- name: release
RELEASE step

-- name: rollback_to
ROLLBACK TO step

-- name: meta_get
SELECT value FROM kernel_meta WHERE key = ?

-- name: meta_all
SELECT key, value FROM kernel_meta

-- name: meta_set
INSERT INTO kernel_meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: meta_seed
INSERT OR IGNORE INTO kernel_meta (key, value) VALUES (?, ?)

-- name: migrations_table
-- 1 if the kernel's tables exist.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'

-- name: user_tables
-- 1 if the file has tables; a new one has none.
SELECT count(*) FROM sqlite_schema

-- name: tables_of_models
-- Every table except the kernel's own.
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND sql NOT LIKE 'CREATE VIRTUAL%'
  AND name NOT IN ('schema_migrations', 'kernel_meta', 'kernel_sequence')

-- name: migrations_applied
SELECT version, name, checksum, applied_at FROM schema_migrations ORDER BY version

-- name: migration_record
INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)

-- name: sequence_seed
INSERT OR IGNORE INTO kernel_sequence (name, value) VALUES ('{name}', 0)

-- name: sequence_read
SELECT value FROM kernel_sequence WHERE name = '{name}'

-- name: sequence_claim
-- Only integers: text plus one would be one.
UPDATE kernel_sequence SET value = value + ?1
WHERE name = '{name}' AND typeof(value) = 'integer' RETURNING value

-- name: sequence_advance
-- Only upwards: a restored database must not assign a number twice.
UPDATE kernel_sequence SET value = max(value, ?1) WHERE name = '{name}'

-- name: sequence_names
-- The counters of the kernel's own table, for tools that do not know the model.
SELECT name FROM kernel_sequence ORDER BY name

-- name: schema_objects
-- Every schema object with its SQL text, except statistics.
SELECT type, name, tbl_name || ': ' || coalesce(sql, 'made with it') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\_stat%' ESCAPE '\'

-- name: table_columns
-- Every column of every table: whether that has rowids, declared type, nullability, and position in the key.
SELECT t.name, t.sql NOT LIKE '%WITHOUT ROWID%', c.name, upper(c.type), c."notnull" OR (c.pk > 0 AND t.sql LIKE '%WITHOUT ROWID%'), c.pk
FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'

-- name: rows_of_other_types
-- Keys of rows in which a value does not have the declared type of its column.
SELECT {key} FROM "{table}" WHERE {condition} AND ({conditions})

-- name: key_after
-- The key so many rows after another one.
SELECT {key} FROM "{table}" WHERE {condition} ORDER BY {order} LIMIT 1 OFFSET ?

-- name: has_table
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?)

-- name: idempotency_find
SELECT digest, result FROM idempotency WHERE caller = ?1 AND key = ?2 AND expires_at > ?3

-- name: idempotency_insert
-- Replaces a row that has expired.
INSERT OR REPLACE INTO idempotency (caller, key, digest, result, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: idempotency_expire
DELETE FROM idempotency WHERE (caller, key) IN (
  SELECT caller, key FROM idempotency WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2
)

-- name: schema_object
-- 1 if there is such a table, index or trigger.
SELECT count(*) FROM sqlite_schema WHERE type = ?1 AND name = ?2

-- name: columns_of_table
-- Name, type, whether it may not be null, and place in the primary key from 1 on.
SELECT name, type, "notnull", pk FROM pragma_table_info(?1)

-- name: is_without_rowid
SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'

-- name: declare_index
UPDATE sqlite_schema SET type = 'index', name = ?1, tbl_name = ?2, sql = ?3 WHERE type = 'table' AND name = ?4
