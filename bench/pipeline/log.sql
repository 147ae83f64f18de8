-- The log of the default branch, in the order of its keys.
SELECT id, seq, op, data FROM revision WHERE branch = '' AND +seq > 0 ORDER BY id, seq, op_index
