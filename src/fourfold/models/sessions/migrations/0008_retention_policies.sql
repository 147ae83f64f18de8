-- How long the sessions under a prefix are kept. Of several policies, that with the longest prefix of an id decides.
CREATE TABLE retention_policies (
  prefix TEXT NOT NULL PRIMARY KEY,
  max_age_s REAL,
  keep_latest INTEGER,
  updated_at TEXT NOT NULL
) STRICT;
