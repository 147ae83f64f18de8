-- name: insert_vote
INSERT INTO vote (seq, choice, votes) VALUES (?1, ?2, ?3)

-- name: add_to_total
INSERT INTO total (choice, votes) VALUES (?1, ?2) ON CONFLICT (choice) DO UPDATE SET votes = votes + excluded.votes

-- name: votes
SELECT choice, votes FROM vote ORDER BY seq

-- name: totals
SELECT choice, votes FROM total

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM vote
