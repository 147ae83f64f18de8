"""A fifth model, made of one folder: tallies, which count votes. Its log is the votes."""
