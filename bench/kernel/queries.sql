-- name: append
-- The log row of a request. Its position is read from the counter inside the same transaction.
INSERT INTO entry (key, ts, position, payload, size)
VALUES (?1, ?2, (SELECT next FROM counter WHERE key = ?1), ?3, ?4)

-- name: advance_one
-- The counter UPDATE of a request.
UPDATE counter SET next = next + 1 WHERE key = ?1

-- name: claim
-- The same in the other order, for a request that is told its position.
UPDATE counter SET next = next + 1 WHERE key = ?1 RETURNING next - 1

-- name: append_at
-- A log row at a position that is known: of a claim, and of the row loop of a bulk insert.
INSERT INTO "entry" ("key", "ts", "position", "payload", "size") VALUES (?,?,?,?,?)

-- name: advance
-- The counter of one key after a bulk insert of several entries.
UPDATE counter SET next = next + ?2 WHERE key = ?1

-- name: count_entries
SELECT count(*) FROM entry

-- name: keys_with_holes
-- Positions of a key are 0, 1, 2, ... without a gap; the unique index rules out repetition.
SELECT key, count(*), min(position), max(position) FROM entry
GROUP BY key HAVING min(position) <> 0 OR max(position) <> count(*) - 1

-- name: wrong_counters
SELECT counter.key, counter.next, count(entry.key)
FROM counter LEFT JOIN entry ON entry.key = counter.key
GROUP BY counter.key HAVING counter.next <> count(entry.key)

-- name: wrong_sizes
SELECT count(*) FROM entry WHERE size <> octet_length(payload) OR typeof(payload) <> 'blob'

-- name: all_payloads
SELECT key, payload FROM entry

-- name: integrity
PRAGMA integrity_check
