-- The query of the last step, over the tables of all four models.

-- name: totals
SELECT 'documents' AS model, 'orders now' AS what, count(*) AS rows,
  sum(cast(get_json_object(document, '$.total') AS double)) AS amount
FROM documents_state WHERE id LIKE 'order:%' AND op <> 'delete'
UNION ALL
SELECT 'documents', 'orders in all their versions', count(*),
  sum(cast(get_json_object(document, '$.total') AS double))
FROM documents_history WHERE id LIKE 'order:%'
UNION ALL
SELECT 'streams', 'events of the tills', count(*),
  sum(cast(get_json_object(text, '$.amount') AS double))
FROM streams_messages WHERE stream = 'shop/orders'
UNION ALL
SELECT 'sessions', 'turns, and their tokens', count(*), sum(tokens) FROM sessions_turns
UNION ALL
SELECT 'graphs', 'edges between products and suppliers', count(*), NULL FROM graphs_edges;
