-- The tables that the kernel keeps in every database, beside those of the model.

-- Which migrations have run, with the checksum of the text that ran.
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL
);

-- Facts about this file: its identity, what made it, when it was last maintained.
CREATE TABLE IF NOT EXISTS kernel_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Named counters. A claim updates the row in the transaction that uses the number.
CREATE TABLE IF NOT EXISTS kernel_sequence (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
