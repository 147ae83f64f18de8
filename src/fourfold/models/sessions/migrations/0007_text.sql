-- Full-text search.

-- The words of messages, calls, summaries, errors and ends of turns: one row per event, by its position. `session` is
-- the word `s<session_key>`, so that a search of one session reads its rows only. The texts are not stored again.
CREATE VIRTUAL TABLE event_text USING fts5(session, text, content='', contentless_delete=1, tokenize='ascii');

-- The position up to which events are in `event_text`. Later ones are added in the background and before a search.
CREATE TABLE event_text_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  until INTEGER NOT NULL
) STRICT;

INSERT INTO event_text_state (id, until) VALUES (1, 0);
