"""Jobs on Spark print the JSON documents that the reference of the command line shows."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.cli import main
from support.documented_json import documented_json

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("documented") / "store"
    with fourfold.open(root) as store:
        store.space("did:web:bob.example").set("note", {"title": "Hello"})
    return root


@pytest.mark.parametrize("job", ["gc", "verify"])
def test_json_of_a_job_has_the_documented_keys(spark, root, capfd, monkeypatch, job):
    # The command uses the session of the tests, which goes on after it.
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    code = main.run(["pipeline", "run", job, str(root), "--json"])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    assert document["report"].keys() == documented_json(f"pipeline run {job}")["report"].keys()
    # The others differ only in their reports, which the tests of each job compare.
    for name in ("gc", "snapshots", "stats", "verify"):
        assert document.keys() == documented_json(f"pipeline run {name}").keys()
