-- Keys of the server. A key is allowed what its grants state, and nothing else.
CREATE TABLE api_key (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  sha256 TEXT NOT NULL UNIQUE,
  label TEXT NOT NULL
) STRICT;

-- Scopes, separated by spaces, for the objects of one model whose names start with a prefix.
CREATE TABLE api_key_grant (
  key_number INTEGER NOT NULL REFERENCES api_key (number) ON DELETE CASCADE,
  model TEXT NOT NULL,
  prefix TEXT NOT NULL,
  scopes TEXT NOT NULL,
  PRIMARY KEY (key_number, model)
) STRICT, WITHOUT ROWID;

-- One row once a key was created: from then on every request needs one.
CREATE TABLE key_requirement (
  id INTEGER PRIMARY KEY CHECK (id = 1)
) STRICT;
