-- Messages of LangGraph threads have words too: all events are indexed again, in the background and before a search.

INSERT INTO event_text (event_text) VALUES ('delete-all');
UPDATE event_text_state SET until = 0;
