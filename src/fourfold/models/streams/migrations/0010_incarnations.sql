-- Offsets tell the incarnation of a stream: the number of streams that had its name before. Streams from before this have 0, as
-- their offsets say.
ALTER TABLE streams ADD COLUMN incarnation_number INTEGER NOT NULL DEFAULT 0;

-- The last number of each name whose stream is gone. The row '' is for all names: numbers up to it may have been given out by a
-- history that this file does not have, such as that before this table, or the one that a restored backup lacks.
CREATE TABLE stream_names (
    stream             TEXT PRIMARY KEY,
    incarnation_number INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO stream_names (stream, incarnation_number)
SELECT '', 0 WHERE EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'streams');

CREATE TRIGGER incarnation_ended AFTER DELETE ON streams
BEGIN
    INSERT INTO stream_names (stream, incarnation_number) VALUES (old.stream, old.incarnation_number)
    ON CONFLICT (stream) DO UPDATE SET incarnation_number = max(incarnation_number, excluded.incarnation_number);
END;
