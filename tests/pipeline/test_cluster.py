"""The pipeline on a standalone cluster and on Spark Connect, both from the pip package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import standalone_cluster as cluster

import fourfold

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

DIDS = [f"did:web:s{number}.example" for number in range(6)]


@pytest.fixture
def stores(tmp_path):
    """Create a store with a few spaces, and an empty one."""
    with fourfold.open(tmp_path / "source") as store:
        for number, did in enumerate(DIDS):
            space = store.space(did, history="facts" if number % 2 else "revisions")
            for step in range(10):
                space.set(f"e{step % 4}", {"n": step})
                space.patch(f"e{step % 4}", [{"op": "add", "path": "/m", "value": number}])
    fourfold.open(tmp_path / "target").close()
    return tmp_path / "source", tmp_path / "target"


def states(root):
    with fourfold.open(root, mode="r") as store:
        return {
            (did, entity): (
                store.space(did).read(entity).document,
                len(store.space(did).history(entity)),
            )
            for did in store.spaces()
            for entity in store.space(did).ids()
        }


def drive(address, archive, stores, folder):
    child = Path(__file__).with_name("cluster_child.py")
    done = subprocess.run(
        [sys.executable, child, address, archive, *map(str, stores), folder / "tables"],
        env=cluster.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(report, stores):
    source, target = stores
    assert report["rows"] == 6 * 20
    assert report["materialize"] == 6 * 4
    assert report.get("verify", "done") == "done"
    assert [row[1] for row in sorted(report["read"], key=lambda row: row[1])] == list(range(1, 21))
    assert states(target) == states(source)
    with fourfold.open(target, mode="r") as store:
        assert [store.space(did).seq() for did in DIDS] == [1] * 6


def test_standalone_cluster_runs_everything_with_zipped_package(stores, tmp_path):
    with cluster.standalone(tmp_path) as address:
        report = drive(address, cluster.shipped(tmp_path), stores, tmp_path)
    check(report, stores)
    assert len({folder for _, folder, _ in report["seen"]}) == 2, "both executors had work"
    for _, _, module in report["seen"]:
        assert "fourfold.zip" in module


def test_executors_read_every_model_without_the_folders_of_the_driver(tmp_path):
    if not cluster.can_hide():
        pytest.skip("no permission to hide folders from a process")
    hidden = [tmp_path / "store", tmp_path / "exports"]
    for folder in hidden:
        folder.mkdir()
    expected = build_every_model(hidden[0])
    archive = cluster.shipped(tmp_path)
    with cluster.standalone(tmp_path, hidden) as address:
        done = subprocess.run(
            [
                *(sys.executable, Path(__file__).with_name("hidden_child.py"), address, archive),
                hidden[0],
            ],
            env=cluster.environment(FOURFOLD_PIPELINE_CACHE_FOLDER=str(hidden[1])),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.pop("seen") == [[], []], "what executors see of the folders"
    assert report == expected


def build_every_model(root):
    """Create a store with all models; return what its tables have."""
    with fourfold.open(root) as store:
        for number in range(4):
            space = store.space(f"did:web:s{number}.example")
            space.set("a", {"n": number})
            space.patch("a", [{"op": "add", "path": "/m", "value": 1}])
        agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
        agent.start({"id": "worker", "model": "any"})
        agent.run_turn("worker", "Count.")
        app = store.graphs.register_app("notes", "Notes").app_id
        note = store.graphs.register_type(app, "parent", "note")
        store.graphs.insert_parent(app, {"type_id": note, "owner_identity": 1})
        stream = store.streams.create("s", "application/json")
        stream.append([{"n": 1}])
        store.archive.publish_all()
        stream.append([{"n": 2}])
    return {
        "revisions": 8,
        "state": [f'{{"m":1,"n":{number}}}' for number in range(4)],
        "history": 8,
        "view": ["worker"],
        "current": ["note"],
        "messages": ['{"n":1}', '{"n":2}'],
        "published": ['{"n":1}'],
        "sql": [["did:web:s0.example", 2]],
    }


def test_spark_connect_runs_everything(stores, tmp_path):
    pytest.importorskip("grpc", reason="the client of Spark Connect needs grpcio")
    archive = cluster.shipped(tmp_path)
    with cluster.connect_server(tmp_path, archive) as address:
        report = drive(address, archive, stores, tmp_path)
    check(report, stores)
