-- Repeated requests, and the status of sessions in lists.

-- Requests that were sent with an idempotency key, and their results. A result is a reference to what was written.
CREATE TABLE idempotency (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  result BLOB NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

-- The events that set the status of a session.
CREATE INDEX idx_events_status ON events (session_key, event_id)
WHERE type IN ('session/started', 'session/stop-requested', 'session/stopped', 'session/error');
