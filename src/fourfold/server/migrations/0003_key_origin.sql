-- When and by which key a key was created; both are unknown for keys of older versions, and
-- `created_by` is empty if the command line or a client without key created it.
ALTER TABLE api_key ADD COLUMN created_at_ms INTEGER;
ALTER TABLE api_key ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
