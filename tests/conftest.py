"""What every test shares: no property fails because the machine was slow.

In CI the examples of a property are always the same, so that a run says something about the change
and not about luck. The search for new ones goes on wherever developers run the tests.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "patient")
