"""Tables of graphs, and their folds in process."""
