"""Tables of documents, and their folds in process."""
