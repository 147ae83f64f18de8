-- What started a run, and its stages and steps by interval.

ALTER TABLE run ADD COLUMN started_by TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN progress TEXT;
