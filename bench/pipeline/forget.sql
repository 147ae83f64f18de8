-- Only in a store of the benchmark: a chain that no snapshot cuts.
DELETE FROM snapshot
