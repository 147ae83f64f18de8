-- Subscriptions: cursors over streams that wake a worker when there are records after them.

CREATE TABLE subscriptions (
    sub             INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL CHECK (kind IN ('webhook', 'pull-wake')),
    pattern         TEXT,
    webhook_url     TEXT,
    wake_stream     TEXT,
    lease_ttl_ms    INTEGER NOT NULL,
    description     TEXT,
    -- Identifies a repeated request.
    config_hash     TEXT NOT NULL,
    -- Address at which its creator reached the server, for the callback of a webhook.
    address         TEXT NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    -- The number of the last wake. It only grows, also over subscriptions that were deleted.
    generation      INTEGER NOT NULL DEFAULT 0,
    -- The wake that is under way; without one the subscription is idle.
    wake_id         TEXT,
    holder          TEXT,
    lease_until_ms  INTEGER,
    -- Time of the next delivery of the wake; NULL once it was delivered.
    next_attempt_ms INTEGER,
    failures        INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX subscriptions_idle_idx ON subscriptions (sub) WHERE wake_id IS NULL;
CREATE INDEX subscriptions_lease_idx ON subscriptions (lease_until_ms) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX subscriptions_attempt_idx ON subscriptions (next_attempt_ms) WHERE next_attempt_ms IS NOT NULL;

-- One cursor per stream of a subscription. A stream that is named may be made later.
CREATE TABLE subscription_links (
    sub      INTEGER NOT NULL REFERENCES subscriptions (sub),
    stream   TEXT NOT NULL,
    explicit INTEGER NOT NULL CHECK (explicit IN (0, 1)),
    globbed  INTEGER NOT NULL CHECK (globbed IN (0, 1)),
    acked    INTEGER NOT NULL,
    -- 1 if the stream has records after `acked`.
    pending  INTEGER NOT NULL DEFAULT 0 CHECK (pending IN (0, 1)),
    -- End of the stream when the current wake was issued.
    told     INTEGER,
    PRIMARY KEY (sub, stream)
) WITHOUT ROWID;
CREATE INDEX subscription_links_stream_idx ON subscription_links (stream, pending);
CREATE INDEX subscription_links_pending_idx ON subscription_links (sub, stream) WHERE pending = 1;
CREATE INDEX subscription_links_told_idx ON subscription_links (sub) WHERE told IS NOT NULL;

-- The number of the last wake of all subscriptions.
CREATE TABLE subscription_generation (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    generation INTEGER NOT NULL
);
INSERT INTO subscription_generation (only, generation) VALUES (1, 0);

-- New streams that no pattern was held against yet.
CREATE TABLE subscription_arrivals (sid INTEGER PRIMARY KEY);

-- Whether a subscription follows the stream: an append to one without subscriptions only reads its own row.
ALTER TABLE streams ADD COLUMN followed INTEGER NOT NULL DEFAULT 0 CHECK (followed IN (0, 1));

CREATE TRIGGER subscription_link AFTER INSERT ON subscription_links
BEGIN
    UPDATE streams SET followed = 1 WHERE stream = new.stream AND followed = 0;
END;

CREATE TRIGGER subscription_unlink AFTER DELETE ON subscription_links
BEGIN
    UPDATE streams SET followed = 0
    WHERE stream = old.stream AND NOT EXISTS (SELECT 1 FROM subscription_links WHERE stream = old.stream);
END;

-- An append marks the cursors before it as pending, in its own transaction: no wake can be lost.
CREATE TRIGGER subscription_append AFTER UPDATE OF next_offset ON streams WHEN new.followed = 1
BEGIN
    UPDATE subscription_links SET pending = 1 WHERE stream = new.stream AND pending = 0 AND acked < new.next_offset;
END;

CREATE TRIGGER subscription_arrival AFTER INSERT ON streams WHEN EXISTS (SELECT 1 FROM subscriptions)
BEGIN
    INSERT INTO subscription_arrivals (sid) VALUES (new.sid);
    UPDATE streams SET followed = 1
    WHERE sid = new.sid AND EXISTS (SELECT 1 FROM subscription_links WHERE stream = new.stream);
END;

-- A stream that is gone takes its cursors along; one that was named starts again with the next of that name.
CREATE TRIGGER subscription_departure AFTER DELETE ON streams WHEN EXISTS (SELECT 1 FROM subscriptions)
BEGIN
    DELETE FROM subscription_links WHERE stream = old.stream AND explicit = 0;
    UPDATE subscription_links SET acked = 0, pending = 0, told = NULL, globbed = 0 WHERE stream = old.stream;
    DELETE FROM subscription_arrivals WHERE sid = old.sid;
END;

CREATE TRIGGER subscription_end AFTER UPDATE OF stream_flags ON streams
WHEN (new.stream_flags & 1) = 1 AND (old.stream_flags & 1) = 0
BEGIN
    DELETE FROM subscription_links WHERE stream = old.stream AND explicit = 0;
    UPDATE subscription_links SET acked = 0, pending = 0, told = NULL, globbed = 0 WHERE stream = old.stream;
END;
