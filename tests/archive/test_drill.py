"""Restore drills: a store is restored from its objects alone, compared, and left as it was."""

from __future__ import annotations

import json
from random import Random

import pytest
from published_stores import Life, open_store

from fourfold import errors
from fourfold.cli import main
from fourfold.objects import FolderStore
from fourfold.store import drill

OUTCOMES = {
    "spaces/did:key:facts": "equal",
    "spaces/did:key:revisions": "equal",
    "sessions": "equal",
    "graphs": "equal",
    "streams/stream0": "equal",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_OBJECTS_URL", str(tmp_path / "objects"))
    with open_store(tmp_path / "shop", tmp_path / "objects") as store:
        Life(store, Random(1)).everything()
        store.streams.create("stream0", "text/plain").append([b"one", b"two"])
        store.publish().raise_if_failed()
    return tmp_path / "shop"


def outcomes(report):
    return {row.name: row.outcome for row in report.comparisons if row.name in OUTCOMES}


def objects_of(shop):
    objects = FolderStore(shop.parent / "objects")
    return {info.key: objects.get(info.key).data for info in objects.list()}


def test_drill_restores_what_the_store_has_and_leaves_no_copy(shop):
    before = sorted(path.name for path in shop.parent.iterdir())
    report = drill.run_drill(shop)
    assert (report.ok, report.published_by, outcomes(report)) == (True, "drill", OUTCOMES)
    assert (report.databases, report.rows > 0, report.records >= 2) == (4, True, True)
    assert sorted(path.name for path in shop.parent.iterdir()) == before


def test_drill_beside_a_writer_reports_what_would_be_lost(shop):
    with open_store(shop, shop.parent / "objects") as store:
        store.space("did:key:facts").set("e1", {"n": "later"})
        store.streams.open("stream0").append(b"three")
        published = objects_of(shop)
        report = drill.run_drill(shop)
        assert objects_of(shop) == published
    lost = {"spaces/did:key:facts": "ahead", "streams/stream0": "ahead"}
    assert outcomes(report) == OUTCOMES | lost
    assert report.published_by.startswith("process ")
    assert report.ok


@pytest.mark.parametrize("what", ["streams/stream0", "spaces/did:key:facts"])
def test_drill_finds_a_copy_that_differs(shop, what, monkeypatch, capsys):
    rebuild = drill.rebuild

    def rebuild_otherwise(copy, **options):
        report = rebuild(copy, **options)
        if what == "streams/stream0":
            copy.streams.delete("stream0")
            copy.streams.create("stream0", "text/plain").append([b"one", b"2"])
            number = "UPDATE streams SET incarnation_number = 0 WHERE stream = 'stream0'"
            copy.streams.database.transact(lambda txn: txn.execute(number))
        else:
            change = """UPDATE "commit" SET created_at = '2001-01-01T00:00:00Z' WHERE seq = 1"""
            copy.space("did:key:facts").database.transact(lambda txn: txn.execute(change))
        return report

    monkeypatch.setattr(drill, "rebuild", rebuild_otherwise)
    code = main.run(["drill", str(shop), "--json"])
    output = capsys.readouterr()
    assert output.out, output.err
    report = json.loads(output.out)
    assert code == errors.CorruptData.exit_code
    assert what in output.err
    assert not report["ok"]
    assert [row["name"] for row in report["comparisons"] if row["outcome"] == "different"] == [what]


def test_drill_refuses_objects_inside_of_the_store(tmp_path, shop):
    with open_store(tmp_path / "own", tmp_path / "own" / "objects") as store:
        store.space("did:key:one").set("a", {})
    settings = tmp_path / "own" / "fourfold.toml"
    assert settings.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOURFOLD_OBJECTS_URL", str(tmp_path / "own" / "objects"))
        with pytest.raises(errors.Refused, match="lost together"):
            drill.run_drill(tmp_path / "own")
    with pytest.raises(errors.Refused, match="not empty"):
        drill.run_drill(shop, shop)


def test_drill_command_keeps_the_copy_and_prints_times(shop, tmp_path, capsys):
    assert main.run(["drill", str(shop), "--into", str(tmp_path / "copy")]) == 0
    printed = capsys.readouterr().out
    assert "recovery takes" in printed
    assert "equal" in printed
    assert main.run(["verify", str(tmp_path / "copy")]) == 0
