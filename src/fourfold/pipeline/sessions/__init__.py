"""Sessions in the pipeline: tables, the fold of views, verification and gc."""

from __future__ import annotations
