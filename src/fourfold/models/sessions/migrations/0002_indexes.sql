-- Indexes that SQLite derives from the rows.

-- The sessions of a family (what their ids have up to the first slash) in the order of their creation.
CREATE INDEX idx_sessions_family
ON sessions (substr(session_id, 1, instr(session_id, '/')), deleted_at, session_key);

-- The checkpoints of LangGraph by the run that made them. Where the metadata are serialised the value is 'object'.
CREATE INDEX idx_events_run ON events (
    CASE WHEN json_valid(body) THEN
        coalesce(json_extract(body, '$.step.metadata.run_id'), json_type(body, '$.step.metadata_item'))
    END
) WHERE entity = 3 AND request_key >= 'c' AND request_key < 'd';
