-- name: claim
-- The position of one new entry: the counter UPDATE of a request. The caller is told the answer.
UPDATE counter SET next = next + 1 WHERE key = ?1 RETURNING next - 1

-- name: append
-- The log row of a request, and of the row loop of a bulk insert.
INSERT INTO "entry" ("key", "ts", "position", "payload", "size") VALUES (?,?,?,?,?)

-- name: advance
-- The counter of one key after a bulk insert of several entries.
UPDATE counter SET next = next + ?2 WHERE key = ?1
