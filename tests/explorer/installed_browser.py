"""The browser of the tests of pages."""

from __future__ import annotations

import os
import shutil

import pytest


def find_chromium():
    """Return the path of a browser. Without one, a test fails in CI and is skipped elsewhere."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is not None:
        return path
    reason = "no Chromium on this machine: apt-get install chromium"
    if os.environ.get("CI"):
        # Skipped tests look like passed ones.
        pytest.fail(reason, pytrace=False)
    return pytest.skip(reason)
