-- The demo's journal: numbered entries, never changed.
CREATE TABLE entry (
    number     INTEGER PRIMARY KEY,
    text       TEXT NOT NULL,
    written_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
