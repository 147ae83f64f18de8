-- Statements about a pair of tables that are derived from the rows {log} of an app: what is so {now}, and what was
-- so {past}. {key} are the columns that separate families, {constants} their values; {columns} are what an object has during an
-- interval, {source} the same of a row, and {changes} compares two in a row. {given} are {columns} as parameters.

-- name: add_first
-- New objects among the rows ?1 to ?2.
INSERT INTO {now} ({key}, {columns}, from_seq)
SELECT {constants}, {source}, global_seq FROM {log} WHERE id BETWEEN ?1 AND ?2 AND object_id = id

-- name: later_versions
-- Versions of older objects among the rows ?1 to ?2.
SELECT id, object_id FROM {log} WHERE id BETWEEN ?1 AND ?2 AND object_id <> id AND leads = 1 ORDER BY id

-- name: leading
-- The newest version of an object up to a row.
SELECT {source}, global_seq FROM {log} WHERE id = {newest}

-- name: drop_now
DELETE FROM {now} WHERE {own} AND {same} RETURNING from_seq

-- name: add_now
INSERT INTO {now} ({key}, {columns}, from_seq) VALUES ({constants}, {given}, ?6)

-- name: add_past
INSERT INTO {past} ({key}, {columns}, from_seq, to_seq) VALUES ({constants}, {given}, ?6, ?7)

-- name: drop_past
-- The interval that ended with the seq ?6, if the object was the same.
DELETE FROM {past} WHERE {own} AND {same} AND to_seq = ?6 RETURNING from_seq

-- name: clear
DELETE FROM {now} WHERE {own};
DELETE FROM {past} WHERE {own};

-- name: clear_of_no_app
DELETE FROM {now} WHERE app_id NOT IN (SELECT app_id FROM apps);
DELETE FROM {past} WHERE app_id NOT IN (SELECT app_id FROM apps);

-- name: intervals
-- The intervals that the log gives; the last one of each object has no `to_seq`. A version that another one of the same
-- seq replaced was never visible, and versions in a row that are the same are one interval.
WITH versions AS (
    SELECT id, {source}, global_seq AS from_seq, lead(global_seq) OVER (PARTITION BY object_id ORDER BY id) AS replaced
    FROM {log} WHERE leads = 1
), visible AS (
    SELECT *, {previous} FROM versions WHERE replaced IS NULL OR replaced > from_seq
    WINDOW same AS (PARTITION BY object_id ORDER BY id)
)
SELECT {constants}, {columns}, from_seq, lead(from_seq) OVER (PARTITION BY object_id ORDER BY id) AS to_seq
FROM visible WHERE {changes}

-- name: fill
INSERT INTO {past} ({key}, {columns}, from_seq, to_seq) SELECT * FROM ({intervals}) WHERE to_seq IS NOT NULL;
INSERT INTO {now} ({key}, {columns}, from_seq) SELECT {constants}, {columns}, from_seq FROM ({intervals})
WHERE to_seq IS NULL;

-- name: missing
-- Intervals of the log that the derived tables lack.
SELECT object_id, from_seq FROM (
    SELECT * FROM ({intervals})
    EXCEPT SELECT {key}, {columns}, from_seq, to_seq FROM {past} WHERE {own}
    EXCEPT SELECT {key}, {columns}, from_seq, NULL FROM {now} WHERE {own}
) LIMIT ?1

-- name: extra
-- Intervals of the derived tables that the log does not give.
SELECT object_id, from_seq FROM (
    SELECT {key}, {columns}, from_seq, to_seq FROM {past} WHERE {own}
    UNION ALL SELECT {key}, {columns}, from_seq, NULL FROM {now} WHERE {own}
    EXCEPT SELECT * FROM ({intervals})
) LIMIT ?1

-- name: of_no_app
SELECT DISTINCT app_id FROM {now} WHERE app_id NOT IN (SELECT app_id FROM apps)
UNION SELECT DISTINCT app_id FROM {past} WHERE app_id NOT IN (SELECT app_id FROM apps)

-- name: apps
SELECT app_id FROM apps ORDER BY app_id
