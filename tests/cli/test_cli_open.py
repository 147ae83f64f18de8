"""`fourfold open`: a server on a free port, and the browser at its address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest


@pytest.fixture
def opened(tmp_path):
    """Start the command with a browser that writes the address that it opens into a file."""
    visited = tmp_path / "visited"
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {visited}.part && mv {visited}.part {visited}\n'
    )
    browser.chmod(0o755)
    processes = []

    def start(*options):
        process = subprocess.Popen(
            [sys.executable, "-m", "fourfold", "open", str(tmp_path / "store"), "--json", *options],
            stdout=subprocess.PIPE,
            env={**os.environ, "BROWSER": str(browser), "PYTHONUNBUFFERED": "1"},
        )
        processes.append(process)
        document = b"".join(iter(process.stdout.readline, b"}\n")) + b"}"
        return json.loads(document), process, visited

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_open_serves_the_explorer_and_opens_the_browser_there(opened):
    document, process, visited = opened()
    wait_for(visited.exists)
    assert visited.read_text() == document["explorer"]
    with urlopen(document["explorer"]) as page:
        assert "<title>Store · store</title>" in page.read().decode()
    process.send_signal(signal.SIGINT)
    process.wait(30)


def test_open_without_a_browser_prints_the_address_only(opened):
    document, _, visited = opened("--no-browser")

    def answers():
        try:
            return urlopen(document["explorer"]).status == 200
        except OSError:
            return False

    wait_for(answers)
    assert not visited.exists()
