"""The command line: translates arguments into calls, and results into text or JSON.

Each command is one file with a `command`; `app.py` lists them, `entry.py` turns every outcome into
an exit code, `output.py` is the only place that prints.
"""

from __future__ import annotations

from fourfold.cli.main import main

__all__ = ["main"]
