-- Envelopes by the text that their writer gave them.
CREATE INDEX envelopes_trace ON envelopes (app_id, trace_id) WHERE trace_id IS NOT NULL;
