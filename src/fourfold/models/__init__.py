"""The four models: documents, streams, graphs, sessions. They never import each other."""

from __future__ import annotations
