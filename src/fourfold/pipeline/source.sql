-- How a worker prepares its connection, before it reads.

-- name: query_only
-- The second lock on the door: the file is opened read-only already.
PRAGMA query_only = 1

-- name: cells
-- Without it a page whose cell pointers are damaged can be read as if it were whole.
PRAGMA cell_size_check = 1

-- name: busy
PRAGMA busy_timeout = {milliseconds}

-- name: temporary
-- An order that memory does not hold goes to a file.
PRAGMA temp_store = FILE

-- name: attach
-- Names without a schema are looked for in the attached file, since nothing else is there.
ATTACH ?1 AS file

-- name: detach
DETACH file
