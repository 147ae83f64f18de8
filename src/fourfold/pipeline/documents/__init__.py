"""Documents in the pipeline: tables, folds, sources, sink, verification and gc."""

from __future__ import annotations
