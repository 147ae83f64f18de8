-- name: add
INSERT INTO entry (number, text) VALUES (?, ?)

-- name: numbers
SELECT number FROM entry ORDER BY number

-- name: newest
SELECT max(number) FROM entry
