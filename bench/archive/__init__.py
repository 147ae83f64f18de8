"""The archive of streams beside its limits: sealing, catching up, appending meanwhile, disk use,
bootstrap, and Spark over what is published. `python -m bench.archive`.
"""

from __future__ import annotations
