-- Statements that prepare the connection of a worker.

-- name: query_only
-- A second safeguard: the file is already opened read-only.
PRAGMA query_only = 1

-- name: cells
-- Without it a page with damaged cell pointers may be read as if it were intact.
PRAGMA cell_size_check = 1

-- name: busy
PRAGMA busy_timeout = {milliseconds}

-- name: temporary
-- Sorts that exceed memory spill to a file.
PRAGMA temp_store = FILE

-- name: attach
-- Names without a schema resolve to the attached file, because there is no other.
ATTACH ?1 AS file

-- name: detach
DETACH file

-- name: origin
-- Which file this is, and how far it goes.
SELECT (SELECT value FROM kernel_meta WHERE key = 'database_id'), ({position})
