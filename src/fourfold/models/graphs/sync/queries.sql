-- Statements about logs, entries and rows of sync.

-- name: node
SELECT incarnation, file_mark FROM sync_node WHERE id = 1

-- name: put_node
INSERT INTO sync_node (id, incarnation, file_mark) VALUES (1, ?1, ?2)
ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, file_mark = excluded.file_mark

-- name: is_of_earlier_format
-- Packages of the earlier format were imported, and their rows have no content ids yet.
SELECT EXISTS (SELECT 1 FROM settings WHERE key = 'sync_format' AND value = 'earlier')

-- name: leave_earlier_format
DELETE FROM settings WHERE key = 'sync_format'

-- name: drop_progress
DELETE FROM sync_state

-- name: drop_sent
DELETE FROM sync_sent

-- name: rights
SELECT peer_id, domain, may_read, may_write FROM sync_peer_domain ORDER BY peer_id, domain

-- name: right
SELECT may_read, may_write FROM sync_peer_domain WHERE peer_id = ?1 AND domain = ?2

-- name: put_right
INSERT INTO sync_peer_domain (peer_id, domain, may_read, may_write) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (peer_id, domain) DO UPDATE SET may_read = excluded.may_read, may_write = excluded.may_write

-- name: domain_apps
SELECT app_id FROM sync_domain_app WHERE domain = ?1

-- name: drop_domain_apps
DELETE FROM sync_domain_app WHERE domain = ?1

-- name: add_domain_app
INSERT OR IGNORE INTO sync_domain_app (domain, app_id) VALUES (?1, ?2)

-- name: peer_tips
SELECT tips FROM sync_peer_tip WHERE peer_id = ?1 AND domain = ?2

-- name: put_peer_tips
INSERT INTO sync_peer_tip (peer_id, domain, tips) VALUES (?1, ?2, ?3)
ON CONFLICT (peer_id, domain) DO UPDATE SET tips = excluded.tips

-- name: put_sent
INSERT INTO sync_sent (peer_id, domain, last_seq) VALUES (?1, ?2, ?3)
ON CONFLICT (peer_id, domain) DO UPDATE SET last_seq = excluded.last_seq

-- name: sent
SELECT last_seq FROM sync_sent WHERE peer_id = ?1 AND domain = ?2

-- name: add_progress
INSERT INTO sync_state (peer_id, domain, last_seq) VALUES (?1, ?2, ?3)
ON CONFLICT (peer_id, domain) DO UPDATE SET last_seq = last_seq + excluded.last_seq

-- name: log
SELECT id FROM sync_log WHERE author = ?1 AND incarnation = ?2 AND domain = ?3

-- name: add_log
INSERT INTO sync_log (author, incarnation, domain) VALUES (?1, ?2, ?3) RETURNING id

-- name: logs
SELECT id, author, incarnation FROM sync_log WHERE domain = ?1 ORDER BY id

-- name: is_signer
SELECT EXISTS (SELECT 1 FROM sync_signer WHERE author = ?1)

-- name: add_signer
INSERT OR IGNORE INTO sync_signer (author) VALUES (?1)

-- name: claim
SELECT entry FROM sync_claim WHERE peer_id = ?1

-- name: put_claim
INSERT INTO sync_claim (peer_id, entry) VALUES (?1, ?2) ON CONFLICT (peer_id) DO UPDATE SET entry = excluded.entry

-- name: tips
SELECT seq, id FROM sync_entry WHERE log_id = ?1 AND is_tip = 1 ORDER BY seq DESC, id

-- name: entry
SELECT log_id, seq FROM sync_entry WHERE id = ?1

-- name: follower
-- An entry that follows ?2 in a log; the first entry of a log follows none.
SELECT id FROM sync_entry WHERE log_id = ?1 AND seq = ?3 AND prev IS ?2 ORDER BY arrival LIMIT 1

-- name: add_entry
INSERT INTO sync_entry (id, log_id, seq, prev, head, signature, is_tip) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1)

-- name: end_tip
UPDATE sync_entry SET is_tip = 0 WHERE id = ?1

-- name: entries
SELECT arrival, head, signature FROM sync_entry WHERE log_id = ?1 AND seq > ?2 AND arrival > ?3
ORDER BY arrival

-- name: count_until
SELECT count(*) FROM sync_entry WHERE log_id = ?1 AND seq <= ?2

-- name: first_fork
SELECT min(seq) FROM sync_fork WHERE log_id = ?1

-- name: add_fork
INSERT OR IGNORE INTO sync_fork (log_id, seq, first, second, noticed_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: forks
SELECT l.domain, l.author, l.incarnation, f.seq, f.first, f.second, f.noticed_at
FROM sync_fork AS f JOIN sync_log AS l ON l.id = f.log_id ORDER BY f.id

-- name: newest_forks
SELECT l.domain, l.author, l.incarnation, f.seq, f.first, f.second, f.noticed_at
FROM sync_fork AS f JOIN sync_log AS l ON l.id = f.log_id ORDER BY f.id DESC LIMIT ?1

-- name: count_forks
SELECT count(*) FROM sync_fork

-- name: newest_logs
SELECT id, author, incarnation FROM sync_log WHERE domain = ?1 ORDER BY id DESC LIMIT ?2

-- name: newest_tips
SELECT seq, id FROM sync_entry WHERE log_id = ?1 AND is_tip = 1 ORDER BY seq DESC, id LIMIT ?2

-- name: first_domains
SELECT domain, mask FROM sync_domains ORDER BY domain LIMIT ?1

-- name: domain_slugs
SELECT a.slug FROM sync_domain_app AS d JOIN apps AS a ON a.app_id = d.app_id
WHERE d.domain = ?1 ORDER BY a.slug LIMIT ?2

-- name: first_peers
SELECT p.id, i.pubkey, i.label, p.endpoint, p.created_at FROM peers AS p
LEFT JOIN identities AS i ON i.id = p.identity_id ORDER BY p.id LIMIT ?1

-- name: peer_domains
-- Rights of a peer, with the entries of it that were accepted and those that it has confirmed.
SELECT r.domain, r.may_read, r.may_write, coalesce(a.last_seq, 0), coalesce(c.last_seq, 0)
FROM sync_peer_domain AS r
LEFT JOIN sync_state AS a ON a.peer_id = r.peer_id AND a.domain = r.domain
LEFT JOIN sync_sent AS c ON c.peer_id = r.peer_id AND c.domain = r.domain
WHERE r.peer_id = ?1 ORDER BY r.domain LIMIT ?2

-- name: label_of_key
SELECT label FROM identities WHERE pubkey = ?1 ORDER BY id LIMIT 1

-- name: row
SELECT app_id, kind, local_id FROM sync_row WHERE row_id = ?1

-- name: body
SELECT body FROM sync_row WHERE row_id = ?1

-- name: row_in_domain
-- A row, and whether it is in a domain.
SELECT r.app_id, r.kind, r.local_id, r.body,
    EXISTS (SELECT 1 FROM sync_member AS m WHERE m.domain = ?2 AND m.row_id = r.row_id)
FROM sync_row AS r WHERE r.row_id = ?1

-- name: row_of
SELECT row_id FROM sync_row WHERE app_id = ?1 AND kind = ?2 AND local_id = ?3

-- name: put_row
-- A row that was parked gets its local id, and a row that is shared its body.
INSERT INTO sync_row (row_id, app_id, kind, local_id, body) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (row_id) DO UPDATE
SET local_id = coalesce(local_id, excluded.local_id), body = coalesce(body, excluded.body)

-- name: is_member
SELECT EXISTS (SELECT 1 FROM sync_member WHERE domain = ?1 AND row_id = ?2)

-- name: add_member
INSERT OR IGNORE INTO sync_member (domain, row_id) VALUES (?1, ?2)

-- name: park
INSERT OR REPLACE INTO sync_parked (row_id, domain, missing, reason, author) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: unpark
DELETE FROM sync_parked WHERE row_id = ?1 AND domain = ?2

-- name: parked
SELECT p.row_id, p.domain, r.app_id, r.kind, p.missing, p.reason
FROM sync_parked AS p JOIN sync_row AS r ON r.row_id = p.row_id ORDER BY p.domain, p.row_id LIMIT ?1

-- name: count_parked
-- Rows of an author that are not applied in a domain, counted up to a bound.
SELECT count(*) FROM (SELECT 1 FROM sync_parked WHERE domain = ?1 AND author = ?2 LIMIT ?3)

-- name: count_all_parked
SELECT count(*) FROM sync_parked

-- name: ready_app
-- An app with parked rows whose missing row is here now and in their domain, and not yet tried: ?1 lists [domain, app].
SELECT p.domain, w.app_id FROM sync_parked AS p JOIN sync_row AS r ON r.row_id = p.missing
JOIN sync_row AS w ON w.row_id = p.row_id
WHERE r.local_id IS NOT NULL AND EXISTS (SELECT 1 FROM sync_member AS m WHERE m.domain = p.domain AND m.row_id = p.missing)
  AND NOT EXISTS (SELECT 1 FROM json_each(?1) AS t WHERE t.value ->> 0 = p.domain AND t.value ->> 1 = w.app_id)
LIMIT 1

-- name: ready
-- Parked rows of an app whose missing row is here now and in their domain.
SELECT p.row_id, p.author FROM sync_parked AS p JOIN sync_row AS r ON r.row_id = p.missing
JOIN sync_row AS w ON w.row_id = p.row_id
WHERE p.domain = ?1 AND w.app_id = ?2 AND r.local_id IS NOT NULL
  AND EXISTS (SELECT 1 FROM sync_member AS m WHERE m.domain = p.domain AND m.row_id = p.missing)
ORDER BY p.row_id LIMIT ?3

-- name: broken_rules
-- Rows of the app ?1 after the row ?2 in the domain ?3 that are not applied because they broke a rule.
SELECT p.row_id, p.domain FROM sync_parked AS p JOIN sync_row AS w ON w.row_id = p.row_id
WHERE p.missing IS NULL AND substr(p.reason, 1, length(?4)) = ?4 AND w.app_id = ?1 AND (p.row_id, p.domain) > (?2, ?3)
ORDER BY p.row_id, p.domain LIMIT ?5

-- name: has_parked
SELECT EXISTS (SELECT 1 FROM sync_parked WHERE missing IS NOT NULL)

-- name: cursor
SELECT seq FROM sync_cursor WHERE domain = ?1

-- name: put_cursor
INSERT INTO sync_cursor (domain, seq) VALUES (?1, ?2) ON CONFLICT (domain) DO UPDATE SET seq = excluded.seq

-- name: enqueue
INSERT OR IGNORE INTO sync_queue (domain, owner, global_seq, position, app_id, kind, local_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: queued
SELECT global_seq, position, app_id, kind, local_id FROM sync_queue
WHERE domain = ?1 AND owner = ?2 AND (global_seq, position) > (?3, ?4) ORDER BY global_seq, position LIMIT ?5

-- name: dequeue
DELETE FROM sync_queue WHERE domain = ?1 AND owner = ?2 AND global_seq = ?3 AND position = ?4

-- name: has_unsummed
SELECT (SELECT coalesce(max(arrival), 0) FROM sync_entry) > coalesce((SELECT arrival FROM sync_summed), 0)

-- name: summed
SELECT arrival FROM sync_summed WHERE id = 1

-- name: put_summed
INSERT INTO sync_summed (id, arrival) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET arrival = excluded.arrival

-- name: unsummed
SELECT e.arrival, l.domain, e.id FROM sync_entry AS e CROSS JOIN sync_log AS l ON l.id = e.log_id
WHERE e.arrival > ?1 ORDER BY e.arrival LIMIT ?2

-- name: domain_unsummed
SELECT e.id, e.arrival FROM sync_entry AS e CROSS JOIN sync_log AS l ON l.id = e.log_id
WHERE l.domain = ?1 AND e.arrival > ?2 ORDER BY e.arrival

-- name: bucket
SELECT count, total FROM sync_bucket WHERE domain = ?1 AND bucket = ?2

-- name: buckets
SELECT bucket, count, total FROM sync_bucket WHERE domain = ?1

-- name: put_bucket
INSERT INTO sync_bucket (domain, bucket, count, total) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (domain, bucket) DO UPDATE SET count = excluded.count, total = excluded.total

-- name: ids_of_domain
SELECT e.id FROM sync_entry AS e CROSS JOIN sync_log AS l ON l.id = e.log_id
WHERE e.id >= ?2 AND e.id < ?3 AND l.domain = ?1 ORDER BY e.id

-- name: entry_by_prefix
SELECT e.arrival, e.head, e.signature FROM sync_entry AS e CROSS JOIN sync_log AS l ON l.id = e.log_id
WHERE e.id >= ?2 AND e.id <= ?3 AND l.domain = ?1 LIMIT 4

-- name: all_buckets
SELECT domain, bucket, count, total FROM sync_bucket

-- name: count_logs
SELECT count(*) FROM sync_log WHERE domain = ?1

-- name: peer_of_key
SELECT p.id FROM peers AS p JOIN identities AS i ON i.id = p.identity_id WHERE i.pubkey = ?1 ORDER BY p.id LIMIT 1

-- name: newest_arrival
SELECT max(arrival) FROM sync_entry

-- name: put_refusal
INSERT INTO sync_refusal (peer_id, entry, kind, message, retryable, domain, author, seq, times, first_at, refused_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?9)
ON CONFLICT (peer_id, entry) DO UPDATE SET kind = excluded.kind, message = excluded.message,
    retryable = excluded.retryable, times = times + 1, refused_at = excluded.refused_at

-- name: drop_refusal
DELETE FROM sync_refusal WHERE peer_id = ?1 AND entry = ?2

-- name: trim_refusals
-- The newest of a peer stay.
DELETE FROM sync_refusal WHERE peer_id = ?1 AND id NOT IN (
    SELECT id FROM sync_refusal WHERE peer_id = ?1 ORDER BY refused_at DESC, id DESC LIMIT ?2
)

-- name: refused_entries
SELECT entry FROM sync_refusal WHERE peer_id = ?1

-- name: refusals
SELECT peer_id, entry, kind, message, retryable, domain, author, seq, times, first_at, refused_at
FROM sync_refusal WHERE ?1 IS NULL OR peer_id = ?1 ORDER BY refused_at DESC, id DESC LIMIT ?2

-- name: audited_entries
-- Damaged values may be of another type.
SELECT CAST(e.id AS BLOB), e.seq, e.prev, CAST(e.head AS BLOB), CAST(e.signature AS BLOB), l.author, l.incarnation, l.domain
FROM sync_entry AS e CROSS JOIN sync_log AS l WHERE l.id = e.log_id ORDER BY e.arrival

-- name: audited_bodies
SELECT CAST(row_id AS BLOB), CAST(body AS BLOB) FROM sync_row WHERE body IS NOT NULL

-- name: has_row
SELECT 1 FROM sync_row WHERE row_id = ?1

-- name: broken_chains
-- Entries without a log, or whose previous entry is not in it.
SELECT CAST(e.id AS BLOB) FROM sync_entry AS e WHERE e.log_id NOT IN (SELECT id FROM sync_log) OR (e.prev IS NULL) <> (e.seq = 1)
  OR (e.prev IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM sync_entry AS p WHERE p.id = e.prev AND p.log_id = e.log_id AND p.seq = e.seq - 1
)) LIMIT ?1

-- name: wrong_tips
SELECT CAST(e.id AS BLOB) FROM sync_entry AS e WHERE e.is_tip = EXISTS (
    SELECT 1 FROM sync_entry AS f WHERE f.log_id = e.log_id AND f.seq = e.seq + 1 AND f.prev = e.id
) LIMIT ?1
