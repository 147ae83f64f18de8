"""SQL in process: the first row, scans, folded states and lookups."""
