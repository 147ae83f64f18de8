-- name: by_id
SELECT sub, id, kind, pattern, webhook_url, wake_stream, lease_ttl_ms, description, config_hash, address, created_at_ms,
       generation, wake_id, holder, lease_until_ms, next_attempt_ms, failures, owner_key, owner_prefix
FROM subscriptions WHERE id = ?1

-- name: page
SELECT sub, id, kind, pattern, webhook_url, wake_stream, lease_ttl_ms, description, config_hash, address, created_at_ms,
       generation, wake_id, holder, lease_until_ms, next_attempt_ms, failures, owner_key, owner_prefix
FROM subscriptions WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: count
SELECT count(*) FROM subscriptions

-- name: count_of_owner
SELECT count(*) FROM subscriptions WHERE owner_prefix = ?1

-- name: owners_of_webhooks
SELECT count(DISTINCT coalesce(owner_prefix, '')) FROM subscriptions WHERE kind = 'webhook'

-- name: links_inside
-- How many links a subscription has (0 or 1), and whether one is outside of the range ?2 to ?3 of names.
SELECT EXISTS (SELECT 1 FROM subscription_links WHERE sub = ?1),
       EXISTS (SELECT 1 FROM subscription_links WHERE sub = ?1 AND (stream < ?2 OR (?3 IS NOT NULL AND stream >= ?3)))

-- name: count_of_stream
SELECT count(*) FROM subscription_links WHERE stream = ?1

-- name: add
INSERT INTO subscriptions (id, kind, pattern, webhook_url, wake_stream, lease_ttl_ms, description, config_hash, address, created_at_ms,
    owner_key, owner_prefix)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)

-- name: drop
DELETE FROM subscriptions WHERE sub = ?1

-- name: drop_links
DELETE FROM subscription_links WHERE sub = ?1

-- name: drop_arrivals
-- Without subscriptions, new streams need not be linked.
DELETE FROM subscription_arrivals WHERE NOT EXISTS (SELECT 1 FROM subscriptions)

-- name: names_from
-- Names of streams in a range, in order: what a new pattern may match.
SELECT stream, next_offset FROM streams
WHERE stream > ?1 AND stream >= ?2 AND (?3 IS NULL OR stream < ?3) AND (stream_flags & 1) = 0 ORDER BY stream LIMIT ?4

-- name: tail
SELECT next_offset FROM streams WHERE stream = ?1 AND (stream_flags & 1) = 0

-- name: link
-- ?1 subscription, ?2 stream, ?3 named, ?4 by the pattern, ?5 the cursor of a new link, ?6 where the stream ends.
INSERT INTO subscription_links (sub, stream, explicit, globbed, acked, pending) VALUES (?1, ?2, ?3, ?4, ?5, ?5 < ?6)
ON CONFLICT (sub, stream) DO UPDATE
SET explicit = max(explicit, excluded.explicit), globbed = max(globbed, excluded.globbed), pending = acked < ?6

-- name: unlink
UPDATE subscription_links SET explicit = 0 WHERE sub = ?1 AND stream = ?2

-- name: drop_unlinked
DELETE FROM subscription_links WHERE sub = ?1 AND stream = ?2 AND explicit = 0 AND globbed = 0

-- name: links
SELECT l.stream, l.explicit, l.acked, coalesce(s.next_offset, 0), coalesce(s.incarnation_number, 0)
FROM subscription_links AS l LEFT JOIN streams AS s ON s.stream = l.stream
WHERE l.sub = ?1 AND l.stream > ?2 ORDER BY l.stream LIMIT ?3

-- name: pending_links
SELECT l.stream, l.explicit, l.acked, s.next_offset, s.incarnation_number
FROM subscription_links AS l JOIN streams AS s ON s.stream = l.stream
WHERE l.sub = ?1 AND l.pending = 1 AND l.acked < s.next_offset ORDER BY l.stream LIMIT ?2

-- name: announced_links
SELECT l.stream, l.explicit, l.acked, l.told, coalesce(s.incarnation_number, 0)
FROM subscription_links AS l LEFT JOIN streams AS s ON s.stream = l.stream
WHERE l.sub = ?1 AND l.told IS NOT NULL ORDER BY l.stream

-- name: one_link
SELECT l.stream, l.explicit, l.acked, coalesce(s.next_offset, 0), coalesce(s.incarnation_number, 0)
FROM subscription_links AS l LEFT JOIN streams AS s ON s.stream = l.stream WHERE l.sub = ?1 AND l.stream = ?2

-- name: set_announced
UPDATE subscription_links SET told = ?3 WHERE sub = ?1 AND stream = ?2

-- name: clear_announced
UPDATE subscription_links SET told = NULL WHERE sub = ?1 AND told IS NOT NULL

-- name: ack
-- ?3 the new cursor, ?4 where the stream ends.
UPDATE subscription_links SET acked = ?3, pending = ?3 < ?4 WHERE sub = ?1 AND stream = ?2

-- name: ack_announced
-- Acknowledge all records of the wake.
UPDATE subscription_links SET acked = max(acked, told),
    pending = max(acked, told) < coalesce((SELECT next_offset FROM streams WHERE stream = subscription_links.stream), 0)
WHERE sub = ?1 AND told IS NOT NULL

-- name: next_generation
UPDATE subscription_generation SET generation = generation + 1 WHERE only = 1

-- name: last_generation
SELECT generation FROM subscription_generation WHERE only = 1

-- name: wake
-- ?2 generation, ?3 wake id, ?4 end of the lease, ?5 when it is announced.
UPDATE subscriptions SET generation = ?2, wake_id = ?3, holder = NULL, lease_until_ms = ?4, next_attempt_ms = ?5 WHERE sub = ?1

-- name: idle
UPDATE subscriptions SET wake_id = NULL, holder = NULL, lease_until_ms = NULL, next_attempt_ms = NULL WHERE sub = ?1

-- name: hold
UPDATE subscriptions SET holder = ?2, lease_until_ms = ?3, next_attempt_ms = NULL WHERE sub = ?1

-- name: prolong
UPDATE subscriptions SET lease_until_ms = ?2 WHERE sub = ?1

-- name: announced
-- The wake of that generation was announced: nothing is sent again before its lease ends.
UPDATE subscriptions SET next_attempt_ms = NULL, failures = 0, lease_until_ms = ?3 WHERE sub = ?1 AND generation = ?2

-- name: failed
UPDATE subscriptions SET next_attempt_ms = ?3, failures = failures + 1 WHERE sub = ?1 AND generation = ?2

-- name: arrivals
SELECT a.sid, s.stream, s.next_offset FROM subscription_arrivals AS a LEFT JOIN streams AS s ON s.sid = a.sid
ORDER BY a.sid LIMIT ?1

-- name: arrived
DELETE FROM subscription_arrivals WHERE sid = ?1

-- name: patterns
SELECT sub, pattern, wake_stream FROM subscriptions WHERE pattern IS NOT NULL

-- name: refresh_links
-- A stream that is linked by name may have been created with records.
UPDATE subscription_links SET pending = acked < ?2 WHERE stream = ?1

-- name: leases_over
-- A wake that is still to be announced has not expired: its announcement issues a new one.
SELECT id FROM subscriptions WHERE lease_until_ms <= ?1 AND next_attempt_ms IS NULL ORDER BY lease_until_ms LIMIT ?2

-- name: idle_with_work
SELECT s.id FROM subscriptions AS s
WHERE s.wake_id IS NULL AND EXISTS (SELECT 1 FROM subscription_links AS l WHERE l.sub = s.sub AND l.pending = 1)
ORDER BY s.sub LIMIT ?1

-- name: attempts
SELECT id FROM subscriptions WHERE kind = ?1 AND next_attempt_ms <= ?2 ORDER BY next_attempt_ms LIMIT ?3

-- name: webhook_attempts
-- Webhooks to be called now, the owners in turn: at most ?2 of each.
SELECT id, owner FROM (
    SELECT id, coalesce(owner_prefix, '') AS owner, next_attempt_ms,
           row_number() OVER (PARTITION BY coalesce(owner_prefix, '') ORDER BY next_attempt_ms, sub) AS place
    FROM subscriptions WHERE kind = 'webhook' AND next_attempt_ms <= ?1
) WHERE place <= ?2 ORDER BY place, next_attempt_ms

-- name: next_time
SELECT min(at) FROM (
    SELECT min(lease_until_ms) AS at FROM subscriptions WHERE lease_until_ms IS NOT NULL AND next_attempt_ms IS NULL
    UNION ALL SELECT min(next_attempt_ms) FROM subscriptions WHERE next_attempt_ms IS NOT NULL
)

-- name: any_arrival
SELECT 1 FROM subscription_arrivals LIMIT 1

-- name: broken_links
-- Cursors without a subscription, after the end of their stream, or with a wrong `pending`; generations above the counter.
SELECT l.stream FROM subscription_links AS l
LEFT JOIN subscriptions AS s ON s.sub = l.sub
LEFT JOIN streams AS t ON t.stream = l.stream AND (t.stream_flags & 1) = 0
WHERE s.sub IS NULL OR l.acked < 0 OR l.acked > coalesce(t.next_offset, 0) OR l.explicit + l.globbed = 0
   OR (l.pending <> (l.acked < coalesce(t.next_offset, 0))
       AND NOT EXISTS (SELECT 1 FROM subscription_arrivals AS a WHERE a.sid = t.sid))
   OR s.generation > (SELECT generation FROM subscription_generation) OR t.followed = 0
LIMIT ?1
