"""Sync of graphs: signed packages of rows, exchanged between nodes."""
