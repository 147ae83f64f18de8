"""`fourfold job` starts, follows, lists and cancels jobs of a server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import get_args

import pytest

import fourfold
from fourfold.cli import main
from fourfold.wire.store import JobKind

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served

BLOCKING = "0" * 64 + ".blob"
"""A pipe with the name of a payload: whatever reads it waits."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("jobs") / "store"
    with fourfold.open(root) as store:
        for number in range(3):
            store.space("did:web:shop.example").set("note", {"n": number})
            store.publish().raise_if_failed()
        store.sessions.create_session({"id": "s"})
    return root


@pytest.fixture(scope="module")
def url(root):
    served = Served(root)
    yield f"http://127.0.0.1:{served.port}"
    served.kill()


@pytest.fixture
def call(monkeypatch, capfd):
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)

    def run(*arguments, code=0, text=False):
        capfd.readouterr()
        words = [*map(str, arguments)] + ([] if text else ["--json"])
        found = main.run(["job", *words])
        printed = capfd.readouterr()
        assert found == code, printed.out + printed.err
        if text:
            return printed.out
        return json.loads(printed.out) if code == 0 else json.loads(printed.err)["error"]

    return run


def test_job_is_started_and_followed_to_its_end(call, url):
    done = call("start", url, "compact")
    assert (done["kind"], done["status"]) == ("compact", "succeeded")
    assert done["result"]["tables"] > 0
    assert call("show", url, done["id"]) == done
    assert call("cancel", url, done["id"]) == done, "it has ended"
    named = call("start", url, "backup", "--option", "name=one", "--option", "one_point=true")
    assert named["options"] == {"name": "one", "one_point": True}
    listed = call("list", url, "--kind", "compact")["jobs"]
    assert listed[0] == done
    assert f"job {done['id']}: compact succeeded" in call("show", url, done["id"], text=True)
    rows = call("list", url, "--ndjson", text=True).splitlines()
    assert [json.loads(row) for row in rows] == call("list", url)["jobs"]
    lines = call("list", url, text=True).splitlines()
    assert lines[0].split() == ["JOB", "KIND", "STATUS", "PROGRESS", "BY"]
    assert lines[1].split()[:3] == [named["id"], "backup", "succeeded"]


def test_running_job_is_cancelled(call, url, root):
    path = root / "sessions" / "blobs" / BLOCKING
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    try:
        job = call("start", url, "verify", "--detach")
        assert job["status"] in {"queued", "running"}
        assert call("cancel", url, job["id"])["status"] == "cancelled"
    finally:
        path.unlink()
    assert call("list", url, "--status", "cancelled")["jobs"][0]["id"] == job["id"]


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("show", "URL", "999"), 3, "not_found"),
        (("start", "URL", "backup", "--option", "name=../x"), 2, "invalid_input"),
        (("start", "URL", "verify", "--option", "objects"), 2, "invalid_input"),
        (("list", "FOLDER"), 2, "invalid_input"),
    ],
)
def test_bad_calls_are_refused(call, url, root, words, code, kind):
    places = {"URL": url, "FOLDER": root}
    assert call(*(places.get(word, word) for word in words), code=code)["kind"] == kind


def test_documented_kinds_are_those_of_the_server():
    from fourfold.cli.job import start  # noqa: PLC0415

    assert all(f"{kind}" in start.help for kind in get_args(JobKind))
