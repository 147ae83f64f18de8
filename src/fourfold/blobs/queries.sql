-- Every query asks length(data), which SQLite answers from the header of the row. The column `size`
-- is stored after the data, so reading it would walk through all of a large blob.

-- name: put
-- The first content type stays. A row whose data has another length than its hash promises is
-- mended; one of the right length is not written again.
INSERT INTO blob_store (hash, data, content_type, size) VALUES (?1, ?2, ?3, length(?2))
ON CONFLICT (hash) DO UPDATE SET data = excluded.data, size = excluded.size
WHERE length(blob_store.data) <> length(excluded.data)

-- name: get
SELECT data FROM blob_store WHERE hash = ?

-- name: get_range
-- Bytes are counted from 1 here, and a part of the empty blob is NULL.
SELECT coalesce(substr(data, ?2 + 1, ?3), x'') FROM blob_store WHERE hash = ?1

-- name: get_size
SELECT length(data) FROM blob_store WHERE hash = ?

-- name: get_content_type
SELECT content_type FROM blob_store WHERE hash = ?

-- name: page
-- The next hashes after one, in order; only the index of the key is read.
SELECT hash FROM blob_store WHERE hash > ?1 ORDER BY hash LIMIT ?2

-- name: delete
DELETE FROM blob_store WHERE hash = ?

-- name: usage
SELECT count(*), coalesce(sum(length(data)), 0) FROM blob_store
