"""The HTTP server. It translates between HTTP and the models, and decides nothing of its own."""

from __future__ import annotations
