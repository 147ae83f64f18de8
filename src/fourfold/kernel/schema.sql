-- Tables of the kernel in every database, beside those of the model.

-- Migrations that ran, with the checksum of their text.
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL
);

-- Facts about this file: its id, its model, its last maintenance.
CREATE TABLE IF NOT EXISTS kernel_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Named counters. A claim updates the row in the transaction that uses the number.
CREATE TABLE IF NOT EXISTS kernel_sequence (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
