"""The HTTP server: it translates between HTTP and the models, without rules of its own."""

from __future__ import annotations
