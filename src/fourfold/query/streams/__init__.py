"""Tables of streams, and their folds in process."""
