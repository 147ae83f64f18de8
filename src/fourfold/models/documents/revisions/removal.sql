-- What only a log of revisions can be asked: in a log of facts `revision` is a view.

-- name: delete_revision
DELETE FROM revision WHERE branch = ?1 AND id = ?2 AND seq = ?3 AND op_index = ?4
