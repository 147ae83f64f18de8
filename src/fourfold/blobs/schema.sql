-- Immutable bytes under the 64 hexadecimal digits of their SHA-256.
CREATE TABLE blob_store (
  hash         TEXT    NOT NULL PRIMARY KEY,
  data         BLOB    NOT NULL,
  content_type TEXT,
  size         INTEGER NOT NULL,
  created_at   TEXT    NOT NULL DEFAULT (datetime('now'))
);
