-- What a current read is measured against: the value of each key, and no history at all.
CREATE TABLE pair (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
