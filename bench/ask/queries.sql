-- name: raw
SELECT branch, id, seq, op_index, op, data FROM revision

-- name: raw_in_process
SELECT branch, id, seq, op_index, op, data FROM revisions

-- name: first_row
SELECT id FROM documents_state LIMIT 1

-- name: state
SELECT id, seq, op, document FROM state

-- name: lookups
SELECT s.document FROM json_each(?) AS j CROSS JOIN state AS s ON s.id = j.value
