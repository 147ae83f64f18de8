-- What the jobs of the pipeline did, and how far each has come.

-- One row for each run. A run that ended says how; one that is still 'running' while no process holds the lock of its
-- job and target was killed.
CREATE TABLE run (
    id          TEXT    NOT NULL PRIMARY KEY,
    job         TEXT    NOT NULL,
    target      TEXT    NOT NULL,
    work        TEXT    NOT NULL,
    plan_key    TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('running', 'done', 'nothing', 'failed', 'interrupted')),
    options     TEXT    NOT NULL,
    input       TEXT    NOT NULL,
    output      TEXT    NOT NULL,
    started_at  TEXT    NOT NULL,
    finished_at TEXT,
    duration_ms INTEGER,
    rows_in     INTEGER,
    rows_out    INTEGER,
    skipped     TEXT    NOT NULL DEFAULT '[]',
    report      TEXT    NOT NULL DEFAULT '{}',
    error       TEXT,
    pid         INTEGER NOT NULL,
    host        TEXT    NOT NULL,
    version     TEXT    NOT NULL
);
CREATE INDEX run_by_job ON run (job, target, started_at);
CREATE INDEX run_by_time ON run (started_at);

-- Steps of a piece of work that are done and need not be done again when a killed run is taken up.
CREATE TABLE step (
    work TEXT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (work, name)
) WITHOUT ROWID;

-- How far a job has come in each of its inputs, for each place that it writes to.
CREATE TABLE watermark (
    job      TEXT    NOT NULL,
    target   TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (job, target, source)
) WITHOUT ROWID;
