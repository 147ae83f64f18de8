-- Statements about the tables that every graph database has.

-- name: last_seq
SELECT seq FROM global_seq

-- name: claim_seq
UPDATE global_seq SET seq = seq + ?1 WHERE id = 1 AND typeof(seq) = 'integer' RETURNING seq

-- name: raise_seq
-- Claims the seq after ?1 if that is the newest.
UPDATE global_seq SET seq = ?1 + 1 WHERE id = 1 AND seq = ?1

-- name: lift_seq
UPDATE global_seq SET seq = max(seq, ?1) WHERE id = 1

-- name: seed_seq
INSERT INTO global_seq (id, seq) VALUES (1, 0)

-- name: greatest_seq
SELECT coalesce(max(global_seq), 0) FROM envelopes

-- name: apps
SELECT app_id, slug, title, version, created_at FROM apps ORDER BY app_id

-- name: app_by_id
SELECT app_id, slug, title, version, created_at FROM apps WHERE app_id = ?1

-- name: app_by_slug
SELECT app_id, slug, title, version, created_at FROM apps WHERE slug = ?1

-- name: next_app
-- App 0 is the system's own.
SELECT coalesce(max(app_id), 0) + 1 FROM apps

-- name: add_app
INSERT INTO apps (app_id, slug, title, version, created_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: set_app_version
UPDATE apps SET version = ?2 WHERE app_id = ?1

-- name: app_steps
SELECT version, name, checksum FROM app_migrations WHERE app_id = ?1 ORDER BY version

-- name: add_app_step
INSERT INTO app_migrations (app_id, version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: tables
SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name GLOB 'app_[0-9]*'

-- name: later_seqs
-- Tables of apps with a row that is newer than the seq ?1.
SELECT app_id, kind, seq FROM (
    SELECT a.app_id, k.value AS kind, (
        SELECT global_seq FROM seq_row WHERE app_id = a.app_id AND kind = k.value ORDER BY global_seq DESC LIMIT 1
    ) AS seq
    FROM apps AS a CROSS JOIN json_each('[1, 2, 4, 8]') AS k
) WHERE seq > ?1

-- name: schema_names
SELECT name FROM sqlite_schema

-- name: last_ids
SELECT name, seq FROM sqlite_sequence

-- name: columns
SELECT name FROM pragma_table_info(?1)

-- name: add_envelope
INSERT INTO envelopes (global_seq, app_id, kinds, sync_flags, created_at, trace_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: envelopes_of_trace
SELECT global_seq, app_id, kinds, sync_flags, created_at, trace_id FROM envelopes
WHERE app_id = ?1 AND trace_id = ?2 AND global_seq > ?3 ORDER BY global_seq LIMIT ?4

-- name: envelope_until
-- The newest envelope up to a seq.
SELECT global_seq, created_at FROM envelopes WHERE global_seq <= ?1 ORDER BY global_seq DESC LIMIT 1

-- name: feed_end
-- The number of the envelope ?6 places after the first one that a feed matches: after ?1 and up to ?2, of the kinds ?3,
-- with one of the flags ?4 if they are given, of the apps ?5 if they are given.
SELECT global_seq FROM envelopes
WHERE global_seq > ?1 AND global_seq <= ?2 AND (kinds & ?3) <> 0 AND (?4 IS NULL OR (sync_flags & ?4) <> 0)
  AND (?5 IS NULL OR app_id IN (SELECT value FROM json_each(?5)))
ORDER BY global_seq, app_id LIMIT 1 OFFSET ?6

-- name: feed_tables
-- What each of these envelopes wrote to.
SELECT app_id, kinds FROM envelopes
WHERE global_seq > ?1 AND global_seq <= ?2 AND (kinds & ?3) <> 0 AND (?4 IS NULL OR (sync_flags & ?4) <> 0)
  AND (?5 IS NULL OR app_id IN (SELECT value FROM json_each(?5)))

-- name: usage
SELECT app_id, rows, bytes, rows_max, bytes_max FROM app_usage WHERE app_id = ?1

-- name: add_usage
INSERT INTO app_usage (app_id) VALUES (?1)

-- name: use
-- Changes nothing when the app would hold more than it may.
UPDATE app_usage SET rows = rows + ?2, bytes = bytes + ?3
WHERE app_id = ?1 AND (rows_max IS NULL OR rows + ?2 <= rows_max) AND (bytes_max IS NULL OR bytes + ?3 <= bytes_max)

-- name: set_limits
UPDATE app_usage SET rows_max = ?2, bytes_max = ?3 WHERE app_id = ?1

-- name: setting
SELECT value FROM settings WHERE key = ?1

-- name: settings
SELECT key, value FROM settings ORDER BY key

-- name: put_setting
INSERT INTO settings (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: identities
SELECT id, pubkey, label, created_at FROM identities ORDER BY id

-- name: identity_number
SELECT id FROM identities WHERE pubkey = ?1

-- name: identity
SELECT id, pubkey, label, created_at FROM identities WHERE id = ?1

-- name: drop_identities
DELETE FROM identities

-- name: put_identity
INSERT INTO identities (id, pubkey, label, created_at) VALUES (?1, ?2, ?3, ?4)

-- name: set_label
UPDATE identities SET label = ?2 WHERE id = ?1

-- name: peers
SELECT id, identity_id, endpoint, meta_json, created_at FROM peers ORDER BY id

-- name: peer
SELECT id, identity_id, endpoint, meta_json, created_at FROM peers WHERE id = ?1

-- name: add_peer
INSERT INTO peers (identity_id, endpoint, meta_json, created_at) VALUES (?1, ?2, ?3, ?4)

-- name: last_peer
SELECT max(id) FROM peers

-- name: progress
SELECT last_seq FROM sync_state WHERE peer_id = ?1 AND domain = ?2

-- name: all_progress
SELECT peer_id, domain, last_seq FROM sync_state ORDER BY peer_id, domain

-- name: put_progress
INSERT INTO sync_state (peer_id, domain, last_seq) VALUES (?1, ?2, ?3)
ON CONFLICT (peer_id, domain) DO UPDATE SET last_seq = excluded.last_seq

-- name: domain_seq
SELECT last_seq FROM domain_seq WHERE domain = ?1

-- name: raise_domain_seq
INSERT INTO domain_seq (domain, last_seq) VALUES (?1, 1)
ON CONFLICT (domain) DO UPDATE SET last_seq = last_seq + 1

-- name: domains
SELECT domain, mask FROM sync_domains ORDER BY domain

-- name: put_domain
INSERT INTO sync_domains (domain, mask) VALUES (?1, ?2) ON CONFLICT (domain) DO NOTHING

-- name: cached
SELECT value, source_global_seq FROM derived_cache WHERE owner = ?1 AND cache_key = ?2

-- name: put_cached
INSERT INTO derived_cache (owner, cache_key, value, source_global_seq, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (owner, cache_key) DO UPDATE
SET value = excluded.value, source_global_seq = excluded.source_global_seq, updated_at = excluded.updated_at

-- name: garbage
-- Cached results of an earlier seq, idempotency keys that expired, and the bytes of both.
SELECT cached, requests, cached_bytes + request_bytes FROM (
    SELECT count(*) AS cached, coalesce(sum(length(CAST(value AS BLOB))), 0) AS cached_bytes FROM derived_cache
    WHERE source_global_seq < (SELECT seq FROM global_seq)
), (
    SELECT count(*) AS requests, coalesce(sum(length(result)), 0) AS request_bytes FROM idempotency WHERE expires_at <= ?1
)

-- name: drop_outdated
DELETE FROM derived_cache WHERE rowid IN (
    SELECT rowid FROM derived_cache WHERE source_global_seq < (SELECT seq FROM global_seq) LIMIT ?1
)

-- name: drop_cached
DELETE FROM derived_cache WHERE owner = ?1
