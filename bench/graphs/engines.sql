-- Questions about a graph for other engines: Cypher for Kuzu, SQL for DuckDB.

-- name: kuzu_nodes
CREATE NODE TABLE P (id INT64 PRIMARY KEY)

-- name: kuzu_links
CREATE REL TABLE K (FROM P TO P)

-- name: kuzu_copy_nodes
COPY P FROM '{path}' (header=false)

-- name: kuzu_copy_links
COPY K FROM '{path}' (header=false)

-- name: kuzu_hop
MATCH (a:P)-[:K]->(b:P) WHERE a.id = $node AND b.id <> $node WITH DISTINCT b.id AS id LIMIT 10 RETURN count(id)

-- name: kuzu_exists
MATCH (a:P)-[:K]->(b:P) WHERE a.id = $src AND b.id = $dst RETURN count(*)

-- name: kuzu_count
MATCH (a:P)-[:K]->(b:P) WHERE a.id = $node RETURN count(*)

-- name: kuzu_path
MATCH (a:P)-[e:K* SHORTEST 1..6]->(b:P) WHERE a.id = $src AND b.id = $dst RETURN length(e)

-- name: kuzu_reach
MATCH (a:P)-[:K* SHORTEST 1..6]->(b:P) WHERE a.id = $node AND b.id <> $node RETURN count(DISTINCT b.id)

-- name: duck_links
CREATE TABLE links AS SELECT * FROM read_csv('{path}', columns = {'src': 'BIGINT', 'dst': 'BIGINT'})

-- name: duck_index_src
CREATE INDEX links_src ON links (src)

-- name: duck_index_dst
CREATE INDEX links_dst ON links (dst)

-- name: duck_hop
SELECT count(*) FROM (SELECT DISTINCT dst FROM links WHERE src = ? AND dst <> src LIMIT 10)

-- name: duck_exists
SELECT 1 FROM links WHERE src = ? AND dst = ? LIMIT 1

-- name: duck_count
SELECT count(*) FROM links WHERE src = ?

-- name: duck_path
WITH RECURSIVE given AS (SELECT ?::BIGINT AS src, ?::BIGINT AS dst), reach (node, depth) AS (
    SELECT src, 0 FROM given
    UNION SELECT l.dst, r.depth + 1 FROM reach AS r JOIN links AS l ON l.src = r.node WHERE r.depth < 6
)
SELECT min(depth) FROM reach WHERE node = (SELECT dst FROM given)

-- name: duck_reach
WITH RECURSIVE given AS (SELECT ?::BIGINT AS src), reach (node, depth) AS (
    SELECT src, 0 FROM given
    UNION SELECT l.dst, r.depth + 1 FROM reach AS r JOIN links AS l ON l.src = r.node WHERE r.depth < 6
)
SELECT count(DISTINCT node) FROM reach WHERE node <> (SELECT src FROM given)
