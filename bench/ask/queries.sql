-- name: raw
SELECT branch, id, seq, op_index, op, data FROM revision

-- name: raw_in_process
SELECT branch, id, seq, op_index, op, data FROM revisions

-- name: first_row
SELECT id FROM documents_state LIMIT 1

-- name: state
SELECT id, seq, op, document FROM state

-- name: lookups
SELECT s.document FROM json_each(?) AS j CROSS JOIN state AS s ON s.id = j.value

-- name: heads
-- What the heads refer to: SQLite without folding.
SELECT h.id, h.seq, r.op, r.data FROM head AS h
JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index

-- name: head_lookups
SELECT r.data FROM json_each(?) AS j CROSS JOIN head AS h ON h.branch = '' AND h.id = j.value
JOIN revision AS r ON r.branch = h.branch AND r.id = h.id AND r.seq = h.seq AND r.op_index = h.op_index

-- name: parquet_view
CREATE VIEW rows AS SELECT * FROM '{path}'

-- name: parquet_rows
SELECT * FROM rows

-- name: plain_table
CREATE TABLE plain (id TEXT NOT NULL PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID

-- name: plain_insert
INSERT INTO plain (id, document) VALUES (?, ?)

-- name: plain_index
CREATE INDEX plain_field ON plain (document ->> '{field}', id)

-- name: plain_page
SELECT id, document FROM plain WHERE document ->> '{field}' = ? ORDER BY id LIMIT ?

-- name: documents
SELECT id, document FROM state

-- name: segments_count
SELECT count(*) FROM read_parquet(?)

-- name: segments_with_word
SELECT j FROM (SELECT decode(payload)::JSON AS j FROM read_parquet(?))
WHERE j->>'message' LIKE '%rare0%'

-- name: segments_in_range
SELECT count(*) FROM (SELECT decode(payload)::JSON AS j FROM read_parquet(?))
WHERE (j->>'duration')::DOUBLE > 150 AND j->>'service' = 'auth'

-- name: segments_by_minute
SELECT (j->>'time')::BIGINT // 60000, j->>'service', count(*), avg((j->>'duration')::DOUBLE)
FROM (SELECT decode(payload)::JSON AS j FROM read_parquet(?)) GROUP BY 1, 2

-- name: logs_table
-- Messages in SQLite, with a column for each field that is asked about.
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, service TEXT NOT NULL, duration REAL NOT NULL, body TEXT NOT NULL
)

-- name: logs_words
CREATE VIRTUAL TABLE logs_words USING fts5 (message, content='', tokenize="unicode61 remove_diacritics 2")

-- name: logs_insert
INSERT INTO logs (id, time, service, duration, body) VALUES (?, ?, ?, ?, ?)

-- name: logs_insert_words
INSERT INTO logs_words (rowid, message) VALUES (?, ?)

-- name: logs_index
CREATE INDEX logs_service_duration ON logs (service, duration)

-- name: logs_with_word
SELECT l.body FROM logs_words AS w JOIN logs AS l ON l.id = w.rowid WHERE logs_words MATCH ? ORDER BY w.rowid DESC LIMIT 50

-- name: logs_count
SELECT count(*) FROM logs WHERE service = 'auth' AND duration > ?

-- name: logs_in_range
SELECT body FROM logs WHERE service = 'auth' AND duration > ? ORDER BY id DESC LIMIT 50

-- name: logs_by_minute
SELECT time / 60000, service, count(*), avg(duration) FROM logs GROUP BY 1, 2
