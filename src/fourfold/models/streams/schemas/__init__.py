"""Schemas of JSON streams: versions, lenses between them, and the proof that a lens is right."""
