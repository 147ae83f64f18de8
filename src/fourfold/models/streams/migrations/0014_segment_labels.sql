-- Segments from now on have the name and the incarnation of their stream in every row.
ALTER TABLE segments ADD COLUMN labeled INTEGER NOT NULL DEFAULT 0;
