-- Queries that every database answers before it is read.

-- name: model
SELECT value FROM kernel_meta WHERE key = 'model'

-- name: file_id
SELECT value FROM kernel_meta WHERE key = 'database_id'

-- name: query_only
PRAGMA query_only = ON

-- name: pages
PRAGMA quick_check(1)

-- name: size
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size

-- name: changed_tables
-- Tables with changes that are not published yet.
SELECT DISTINCT table_name FROM published_change
