"""`fourfold publish`, `bootstrap` and `verify --objects` for a store of every model."""

from __future__ import annotations

import json
from random import Random

import pytest
from published_stores import Life, contents

import fourfold
from fourfold.cli import main
from fourfold.objects import FolderStore


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        found = main.run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out if code == 0 else said.out + said.err

    return call


@pytest.fixture
def shop(tmp_path):
    with fourfold.open(tmp_path / "shop") as store:
        Life(store, Random(1)).everything()
    return tmp_path / "shop"


def change(root):
    with fourfold.open(root) as store:
        store.space("did:key:facts").set("e1", {"n": "later"})
        store.streams.create("stream0", "text/plain").append([b"later"])


def test_store_is_published_and_rebuilt_at_any_of_its_points(run, shop, tmp_path):
    first = json.loads(run("publish", "shop", "--objects", "objects", "--json"))
    assert {database["name"] for database in first["databases"]} == {
        "spaces/did:key:facts",
        "spaces/did:key:revisions",
        "sessions",
        "graphs",
    }
    was = contents(shop)
    change(shop)
    standing = json.loads(run("publish", "shop", "--dry-run", "--json"))
    pending = {
        database["name"]: database["newest"] - database["published"]
        for database in standing["databases"]
    }
    assert pending.pop("spaces/did:key:facts") == 1
    assert set(pending.values()) == {0}
    assert standing["unpublished_records"] == 1
    assert "spaces/did:key:facts" in run("publish", "shop", "--dry-run")
    assert "published 1 database" in run("publish", "shop")
    points = json.loads(run("publish", "shop", "--points", "--json"))["points"]
    assert points[0]["id"] == first["point"]
    assert points[1]["id"] in run("publish", "shop", "--points")
    report = json.loads(run("bootstrap", "new", "--objects", "objects", "--json"))
    assert {database["name"] for database in report["databases"]} == {
        database["name"] for database in first["databases"]
    }
    assert contents(tmp_path / "new") == contents(shop)
    run("bootstrap", "old", "--objects", "objects", "--at", first["point"])
    assert contents(tmp_path / "old") == was
    assert "the store is sound" in run("verify", "new", "--objects")


def test_store_of_past_publishes_only_if_it_takes_over(run, shop):
    first = json.loads(run("publish", "shop", "--objects", "objects", "--json"))["point"]
    change(shop)
    run("publish", "shop")
    run("bootstrap", "past", "--objects", "objects", "--at", first)
    change("past")
    assert "error[publisher_fenced]" in run("publish", "past", code=6)
    run("bootstrap", "next", "--objects", "objects", "--at", first, "--take-over")
    change("next")
    run("publish", "next")
    change(shop)
    assert "error[publisher_fenced]" in run("publish", "shop", code=6)
    run("bootstrap", "more", "--objects", "objects", "--take-over", code=2)


def test_one_model_is_published_alone(run, shop):
    report = json.loads(run("publish", "shop", "--model", "graphs", "--json"))
    assert [database["name"] for database in report["databases"]] == ["graphs"]
    assert (report["manifests"], report["segments"]) == (0, 0)
    run("publish", "shop", "--model", "nothing", code=2)


def test_unknown_restore_point_is_refused(run, shop):
    run("publish", "shop", "--objects", "objects")
    assert "error[not_found]" in run(
        "bootstrap", "new", "--objects", "objects", "--at", "x", code=3
    )


def test_compacted_and_indexed_segments_are_reported(run, shop):
    for _ in range(5):
        report = json.loads(run("publish", "shop", "--objects", "objects", "--json"))
        change(shop)
    assert report["compacted"] is report["indexed"] is report["given_up"] is None
    report = json.loads(run("publish", "shop", "--compact", "--index", "--json"))
    merged = {entry["name"]: entry for entry in report["merged"]}["documents.facts.commit"]
    assert merged["files"] == 6
    assert 1 <= merged["written"] < merged["retired"]
    assert report["compacted"]["streams"] == report["compacted"]["compacted"] == 1
    assert report["indexed"]["segments"] >= 1
    said = ""
    for _ in range(5):
        change(shop)
        said += run("publish", "shop", "--compact")
    assert "of documents.facts.commit into" in said
    assert "the store is sound" in run("verify", "shop", "--objects")


def test_points_are_given_up_and_their_objects_listed_then_deleted(run, shop, monkeypatch):
    for _ in range(4):
        run("publish", "shop", "--objects", "objects")
        change(shop)
    run("publish", "shop")
    points = json.loads(run("publish", "shop", "--points", "--json"))["points"]
    would = json.loads(run("publish", "shop", "--dry-run", "--keep", "2", "--json"))
    assert would["would_give_up"]["points"] == len(points) - 2
    assert "would remove 3 points" in run("publish", "shop", "--dry-run", "--keep", "2")
    assert json.loads(run("publish", "shop", "--points", "--json"))["points"] == points
    report = json.loads(
        run("publish", "shop", "--collect", "--keep", "2", "--keep", "0s", "--json")
    )
    assert report["given_up"]["points"] == len(points) - 2
    assert report["deleted_objects"] == 0
    assert json.loads(run("publish", "shop", "--points", "--json"))["points"] == points[-2:]
    monkeypatch.setenv("FOURFOLD_ARCHIVE_GRACE_S", "0")
    listed = json.loads(run("publish", "shop", "--dry-run", "--json"))["would_delete"]
    assert "database" in listed[0]
    deleted = json.loads(run("publish", "shop", "--collect", "--json"))
    assert deleted["deleted_objects"] == len(listed) > 0
    assert "the store is sound" in run("verify", "shop", "--objects")
    run("bootstrap", "new", "--objects", "objects", "--at", points[-2]["id"])
    gone = run("bootstrap", "old", "--objects", "objects", "--at", points[0]["id"], code=3)
    assert "error[not_found]" in gone


def test_points_to_keep_require_pruning_and_come_once(run, shop):
    run("publish", "shop", "--keep", "2", code=2)
    run("publish", "shop", "--collect", "--keep", "2", "--keep", "3", code=2)
    run("publish", "shop", "--collect", "--keep", "soon", code=2)


def test_a_damaged_object_is_named(run, shop, tmp_path):
    run("publish", "shop", "--objects", "objects")
    with FolderStore(tmp_path / "objects") as objects:
        keys = [info.key for info in objects.list("tables/sessions.events/")]
        key = next(key for key in keys if key.endswith(".parquet"))
        objects.put(key, b"damaged")
    assert key in run("verify", "shop", "--objects", code=8)
