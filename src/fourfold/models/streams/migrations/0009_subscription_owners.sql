-- The key that made a subscription, and the prefix that it had: only keys of that prefix, or of a shorter one, may use it. NULL where
-- the server asked for no key, and in rows of earlier versions.
ALTER TABLE subscriptions ADD COLUMN owner_key TEXT;
ALTER TABLE subscriptions ADD COLUMN owner_prefix TEXT;
