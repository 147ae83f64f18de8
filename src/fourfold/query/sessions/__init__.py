"""Tables of sessions, and their folds in process."""
