-- Sums of the entries of sync, by which two nodes compare what they have.

-- Entries of a domain whose ids begin with a byte: their number, and the sum of their ids modulo 2^256. Derived from
-- `sync_entry` up to an arrival, and not part of the archive.
CREATE TABLE sync_bucket (
    domain TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    total  BLOB NOT NULL,
    PRIMARY KEY (domain, bucket)
) WITHOUT ROWID;

-- The arrival up to which entries are in `sync_bucket`.
CREATE TABLE sync_summed (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    arrival INTEGER NOT NULL
);
