"""SQL in process: the registry of tables, and queries over the files of one store."""
