-- Keys of the server.

-- name: keys
SELECT k.id, k.sha256, k.label, k.created_at_ms, k.created_by, k.expires_at_ms, k.last_used_on, k.replaces,
  k.requests_per_s, k.bytes_per_day, g.model, g.prefix, g.scopes
FROM api_key AS k LEFT JOIN api_key_grant AS g ON g.key_number = k.number
ORDER BY k.number, g.model

-- name: key_required
SELECT EXISTS (SELECT 1 FROM key_requirement)

-- name: require_key
INSERT INTO key_requirement (id) VALUES (1) ON CONFLICT DO NOTHING

-- name: key_number
SELECT number FROM api_key WHERE id = ?1

-- name: add_key
INSERT INTO api_key
  (id, sha256, label, created_at_ms, created_by, expires_at_ms, last_used_on, replaces, requests_per_s, bytes_per_day)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) RETURNING number

-- name: add_grant
INSERT INTO api_key_grant (key_number, model, prefix, scopes) VALUES (?1, ?2, ?3, ?4)

-- name: set_key_expiry
UPDATE api_key SET expires_at_ms = ?2 WHERE id = ?1 RETURNING number

-- name: bring_forward_key_expiry
UPDATE api_key SET expires_at_ms = ?2 WHERE id = ?1 AND (expires_at_ms IS NULL OR expires_at_ms > ?2)

-- name: set_key_use
-- A day before the one that is stored changes nothing.
UPDATE api_key SET last_used_on = ?2 WHERE id = ?1 AND (last_used_on IS NULL OR last_used_on < ?2)

-- name: remove_key
DELETE FROM api_key WHERE number = ?1

-- name: key_count
SELECT count(*) FROM api_key

-- Jobs.

-- name: add_job
INSERT INTO job (kind, options, status, created_at_ms) VALUES (?1, ?2, 'queued', ?3) RETURNING number

-- name: job
SELECT number, kind, options, status, created_at_ms, started_at_ms, ended_at_ms, label, done, total, result, error
FROM job WHERE number = ?1

-- name: jobs
-- Jobs before a number, newest first; of one status or of one kind if they are given.
SELECT number, kind, options, status, created_at_ms, started_at_ms, ended_at_ms, label, done, total, result, error
FROM job WHERE number < ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR kind = ?3)
ORDER BY number DESC LIMIT ?4

-- name: start_job
UPDATE job SET status = 'running', started_at_ms = ?2 WHERE number = ?1

-- name: end_job
UPDATE job SET status = ?2, ended_at_ms = ?3, label = ?4, done = ?5, total = ?6, result = ?7, error = ?8
WHERE number = ?1

-- name: unfinished_jobs
SELECT count(*) FROM job WHERE status IN ('queued', 'running')

-- name: interrupt_jobs
UPDATE job SET status = 'interrupted', ended_at_ms = ?1 WHERE status IN ('queued', 'running')

-- name: expire_jobs
-- Ended jobs before the newest ?1.
DELETE FROM job WHERE status NOT IN ('queued', 'running')
  AND number <= (SELECT number FROM job ORDER BY number DESC LIMIT 1 OFFSET ?1)
