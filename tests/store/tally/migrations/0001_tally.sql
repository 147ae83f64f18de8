-- The log: one row for each vote.
CREATE TABLE vote (
    seq    INTEGER PRIMARY KEY,
    choice TEXT    NOT NULL,
    votes  INTEGER NOT NULL
);
-- The fold of the log.
CREATE TABLE total (
    choice TEXT    PRIMARY KEY,
    votes  INTEGER NOT NULL
) WITHOUT ROWID;
