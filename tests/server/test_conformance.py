"""The published conformance suite of the Durable Streams protocol, against a real server.

It comes from npm, so it needs node and npm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from served_streams import Served

SUITE = "@durable-streams/server-conformance-tests"
VERSION = "0.3.6"
TEST = f"""
import {{ runConformanceTests }} from "{SUITE}"
const baseUrl = process.env.STREAMS_URL
runConformanceTests({{ baseUrl, longPollTimeoutMs: 3000, subscriptions: true }})
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("npm") is None, reason="the suite comes from npm")
def test_conformance_suite_passes(tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "suite", "private": true, "type": "module"}')
    (folder / "conformance.test.ts").write_text(TEST)
    install = ["npm", "install", "--no-audit", "--no-fund", f"{SUITE}@{VERSION}"]
    got = subprocess.run(install, cwd=folder, check=False, capture_output=True, timeout=300)
    if got.returncode:
        pytest.skip(f"npm cannot install the suite here: {got.stderr.decode()[-300:]}")
    served = Served(tmp_path / "store", options=("--cors", "*"))
    try:
        done = subprocess.run(
            ["npx", "vitest", "run", "--testTimeout", "30000"],
            cwd=folder,
            env={**os.environ, "STREAMS_URL": f"http://127.0.0.1:{served.port}", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        served.kill()
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    counted = re.search(r"Tests\s+(.*)\(338\)", printed)
    assert counted is not None, printed[-2000:] + done.stderr[-2000:]
    assert counted[1].split("|")[0].strip() == "338 passed", printed[-6000:]
