-- Indexes of the rows of all apps; {n} is an app, {kind} a table and {bit} its bit.

-- name: add_seq
INSERT INTO seq_row (app_id, kind, global_seq, first_id) VALUES (?1, ?2, ?3, ?4)

-- name: add_version
INSERT INTO row_version (app_id, kind, object_id, leads, id) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: last_leading
-- The version of an edge that led before a row, with its seq.
SELECT dst_attr_id IS NOT NULL, coalesce(dst_attr_id, dst_parent_id), global_seq FROM app_{n}_edge WHERE id = coalesce((
    SELECT id FROM row_version
    WHERE app_id = {n} AND kind = {bit} AND object_id = ?1 AND leads = 1 AND id < ?2 ORDER BY id DESC LIMIT 1
), ?1)

-- name: add_unseen
INSERT OR IGNORE INTO edge_unseen (app_id, dst_kind, dst, object_id) VALUES (?1, ?2, ?3, ?4)

-- name: clear_of_no_app
DELETE FROM seq_row WHERE app_id NOT IN (SELECT app_id FROM apps);
DELETE FROM row_version WHERE app_id NOT IN (SELECT app_id FROM apps);
DELETE FROM edge_unseen WHERE app_id NOT IN (SELECT app_id FROM apps);

-- name: clear
DELETE FROM seq_row WHERE app_id = {n} AND kind = {bit};
DELETE FROM row_version WHERE app_id = {n} AND kind = {bit};
DELETE FROM edge_unseen WHERE app_id = {n} AND {bit} = 4;

-- name: seqs
SELECT {n} AS app_id, {bit} AS kind, global_seq, min(id) AS first_id FROM app_{n}_{kind} GROUP BY global_seq

-- name: later
SELECT {n} AS app_id, {bit} AS kind, object_id, leads, id FROM app_{n}_{kind} WHERE object_id <> id

-- name: unseen
SELECT DISTINCT {n} AS app_id, dst_kind, dst, object_id FROM (
    SELECT dst_attr_id IS NOT NULL AS dst_kind, coalesce(dst_attr_id, dst_parent_id) AS dst, object_id, leads, global_seq,
        lead(global_seq) OVER (PARTITION BY object_id, leads ORDER BY id) AS replaced
    FROM app_{n}_edge
) WHERE leads = 0 OR replaced = global_seq

-- name: fill
INSERT INTO seq_row (app_id, kind, global_seq, first_id) {seqs};
INSERT INTO row_version (app_id, kind, object_id, leads, id) {later};

-- name: fill_unseen
INSERT INTO edge_unseen (app_id, dst_kind, dst, object_id) {unseen}

-- name: wrong_seqs
SELECT global_seq FROM (
    SELECT * FROM ({seqs} EXCEPT SELECT * FROM seq_row WHERE app_id = {n} AND kind = {bit})
    UNION ALL SELECT * FROM (SELECT * FROM seq_row WHERE app_id = {n} AND kind = {bit} EXCEPT {seqs})
) LIMIT ?1

-- name: wrong_versions
SELECT id FROM (
    SELECT * FROM ({later} EXCEPT SELECT * FROM row_version WHERE app_id = {n} AND kind = {bit})
    UNION ALL SELECT * FROM (SELECT * FROM row_version WHERE app_id = {n} AND kind = {bit} EXCEPT {later})
) LIMIT ?1

-- name: wrong_unseen
SELECT object_id FROM (
    SELECT * FROM ({unseen} EXCEPT SELECT * FROM edge_unseen WHERE app_id = {n})
    UNION ALL SELECT * FROM (SELECT * FROM edge_unseen WHERE app_id = {n} EXCEPT {unseen})
) LIMIT ?1

-- name: of_no_app
SELECT app_id FROM seq_row WHERE app_id NOT IN (SELECT app_id FROM apps)
UNION SELECT app_id FROM row_version WHERE app_id NOT IN (SELECT app_id FROM apps)
UNION SELECT app_id FROM edge_unseen WHERE app_id NOT IN (SELECT app_id FROM apps)

-- name: apps
SELECT app_id FROM apps ORDER BY app_id
