-- name: begin_run
INSERT INTO run (id, job, target, work, plan_key, state, options, input, output, started_at, pid, host, version,
    started_by)
VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)

-- name: end_run
UPDATE run SET state = ?2, finished_at = ?3, duration_ms = ?4, rows_in = ?5, rows_out = ?6, output = coalesce(?7, output),
    skipped = ?8, report = ?9, error = ?10, progress = ?11
WHERE id = ?1 AND state = 'running'

-- name: unfinished
-- The runs of a job and target in the state 'running'.
SELECT id, pid, host FROM run WHERE job = ?1 AND target = ?2 AND state = 'running'

-- name: last_end
-- The newest ended run of a job and target that had a plan, in any state.
SELECT work, plan_key, state FROM run
WHERE job = ?1 AND target = ?2 AND state <> 'running' AND plan_key <> '' ORDER BY started_at DESC, rowid DESC LIMIT 1

-- name: interrupt
UPDATE run SET state = 'interrupted', finished_at = ?2, error = ?3 WHERE id = ?1 AND state = 'running'

-- name: steps
SELECT name, data FROM step WHERE work = ?1 ORDER BY name

-- name: save_step
INSERT INTO step (work, name, data) VALUES (?1, ?2, ?3) ON CONFLICT (work, name) DO UPDATE SET data = excluded.data

-- name: delete_steps
DELETE FROM step WHERE work = ?1

-- name: watermarks
SELECT source, position FROM watermark WHERE job = ?1 AND target = ?2

-- name: raise_watermark
-- Only upwards, so that a run that was overtaken does not lower it.
INSERT INTO watermark (job, target, source, position) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (job, target, source) DO UPDATE SET position = max(position, excluded.position)

-- name: delete_watermarks
DELETE FROM watermark WHERE job = ?1 AND target = ?2

-- name: history
-- The newest runs; of one job, before another run, not of jobs of the server, or in some states, if that is given.
SELECT id, job, target, work, state, options, input, output, started_at, finished_at, duration_ms, rows_in, rows_out,
    skipped, report, error, pid, host, version, started_by, progress
FROM run WHERE (?1 IS NULL OR job = ?1) AND (?4 = 0 OR started_by NOT LIKE 'job %')
  AND (?5 IS NULL OR state IN (SELECT value FROM json_each(?5)))
  AND (?3 IS NULL OR (started_at, rowid) < (SELECT o.started_at, o.rowid FROM run AS o WHERE o.id = ?3))
ORDER BY started_at DESC, rowid DESC LIMIT ?2

-- name: newest
-- The newest run of each job and target.
SELECT id, job, target, work, state, options, input, output, started_at, finished_at, duration_ms, rows_in, rows_out,
    skipped, report, error, pid, host, version, started_by, progress
FROM run AS r WHERE NOT EXISTS (
    SELECT 1 FROM run AS later
    WHERE later.job = r.job AND later.target = r.target
      AND (later.started_at, later.rowid) > (r.started_at, r.rowid)
) ORDER BY job, target

-- name: run
SELECT id, job, target, work, state, options, input, output, started_at, finished_at, duration_ms, rows_in, rows_out,
    skipped, report, error, pid, host, version, started_by, progress
FROM run WHERE id = ?1

-- name: run_of_job
-- The newest run that a job of the server started.
SELECT id, job, target, work, state, options, input, output, started_at, finished_at, duration_ms, rows_in, rows_out,
    skipped, report, error, pid, host, version, started_by, progress
FROM run WHERE started_by = ?1 AND started_at >= ?2 ORDER BY started_at DESC LIMIT 1
