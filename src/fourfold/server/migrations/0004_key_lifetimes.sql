-- Lifetimes, last uses and quotas of keys. `expires_at_ms` is NULL for a key that does not expire,
-- `last_used_on` is a day in UTC, as in 2026-07-14, and `replaces` the id of the key that this one
-- replaces by rotation. A quota is NULL if there is none.
ALTER TABLE api_key ADD COLUMN expires_at_ms INTEGER;
ALTER TABLE api_key ADD COLUMN last_used_on TEXT;
ALTER TABLE api_key ADD COLUMN replaces TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN requests_per_s REAL;
ALTER TABLE api_key ADD COLUMN bytes_per_day INTEGER;
