-- name: set_commit_time
-- An imported commit keeps the time at which it was first made.
UPDATE "commit" SET created_at = ?2 WHERE seq = ?1

-- name: set_branch_time
UPDATE branch SET created_at = ?2 WHERE name = ?1
