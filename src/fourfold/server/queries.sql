-- Keys of the server.

-- name: keys
SELECT k.id, k.sha256, k.label, g.model, g.prefix, g.scopes
FROM api_key AS k LEFT JOIN api_key_grant AS g ON g.key_number = k.number
ORDER BY k.number, g.model

-- name: key_required
SELECT EXISTS (SELECT 1 FROM key_requirement)

-- name: require_key
INSERT INTO key_requirement (id) VALUES (1) ON CONFLICT DO NOTHING

-- name: key_number
SELECT number FROM api_key WHERE id = ?1

-- name: add_key
INSERT INTO api_key (id, sha256, label) VALUES (?1, ?2, ?3) RETURNING number

-- name: add_grant
INSERT INTO api_key_grant (key_number, model, prefix, scopes) VALUES (?1, ?2, ?3, ?4)

-- name: remove_key
DELETE FROM api_key WHERE number = ?1

-- name: key_count
SELECT count(*) FROM api_key
