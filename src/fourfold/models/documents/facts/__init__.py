"""The history `facts`: a log of content-addressed facts, each of which names the one before it."""

from __future__ import annotations
