"""`fourfold show`: an overview of all four models that is cheap for any store."""

from __future__ import annotations

import os
import shutil

import pytest

import fourfold
from fourfold.cli.main import run
from fourfold.models.model import model
from fourfold.store import overview

DID = "did:web:shop.example"


def path_of(store, did):
    location = model("documents").location
    return location.path(store, location.name(did))


@pytest.fixture
def store(tmp_path):
    root = tmp_path / "full"
    with fourfold.open(root) as store:
        space = store.space(DID)
        for number in range(3):
            space.transact([{"op": "set", "id": "note", "value": {"n": number}}])
        stream = store.streams.create("orders", "application/json")
        stream.append([{"id": 1}, {"id": 2}])
        store.sessions.create_session({"id": "s-1"})
        message = {"role": "user", "content": "Hello"}
        store.sessions.append_event("s-1", {"type": "message/appended", "message": message})
        app = store.graphs.register_app("notes", "Notes")
        store.graphs.register_type(app.app_id, "parent", "note")
        operation = {"app_id": app.app_id, "owner_identity": 0, "op": "parent_create"}
        store.graphs.apply(
            {"trace_id": "t", "ops": [{**operation, "type_key": "note", "payload": {}}]}
        )
    return root


def models(document):
    return {model["model"]: model for model in document["models"]}


def test_overview_counts_every_model(store, call):
    document = call("show", store, "--json").document
    found = models(document)
    assert list(found) == ["documents", "streams", "graphs", "sessions"]
    assert [(model["count"], model["unit"]) for model in found.values()] == [
        (1, "space"),
        (1, "stream"),
        (2, "app"),
        (1, "session"),
    ]
    assert found["documents"]["details"] == {"sampled_spaces": 1, "commits": 3}
    assert found["streams"]["details"] == {"records": 2}
    assert found["graphs"]["details"]["global_seq"] >= 1
    assert found["sessions"]["details"] == {"events": 1}
    assert {model["health"] for model in found.values()} == {"ok"}
    assert document["bytes"] == sum(model["bytes"] for model in found.values())
    text = call("show", store).out
    for part in ("1 space, 3 commits", "1 stream, 2 records", "1 session, 1 event"):
        assert part in text


def test_newest_activity_is_the_time_of_the_newest_entry(store, call):
    found = models(call("show", store, "--json").document)
    with fourfold.open(store, mode="r") as opened:
        commit = opened.space(DID).log(after=2)[0]
        assert found["documents"]["newest"] == f"{commit.created_at[:23]}Z"
        position = opened.sessions.position()
        assert found["sessions"]["newest"] == opened.sessions.all_events_since(position - 1)[0].at
    assert all(model["newest"] for model in found.values())


def test_overview_of_an_empty_store_has_zeros(root, call):
    found = models(call("show", root, "--json").document)
    assert [model["count"] for model in found.values()] == [0, 0, 0, 0]
    assert {model["newest"] for model in found.values()} == {None}


def test_folder_without_a_store_is_an_error(call, tmp_path):
    assert call("show", tmp_path, "--json").error["kind"] == "not_found"


def files_of(root):
    """Every file with its bytes, without those that SQLite keeps for readers."""
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {
        path: data
        for path, data in files.items()
        if not path.name.endswith("-shm") and (data or not path.name.endswith("-wal"))
    }


def test_overview_writes_nothing_beside_a_writer(store, call):
    with fourfold.open(store) as opened:
        opened.streams.open("orders").append({"id": 3})
        before = files_of(store)
        found = models(call("show", store, "--json").document)
        assert files_of(store) == before
    assert found["streams"]["details"] == {"records": 3}
    assert found["streams"]["writer"] == os.getpid()
    assert found["sessions"]["writer"] is None


def test_overview_adds_no_data_to_a_closed_store(store, call):
    before = files_of(store)
    assert call("show", store).code == 0
    assert files_of(store) == before


def test_damaged_database_is_reported_and_the_rest_is_shown(store, call):
    model("sessions").location.path(store).write_bytes(b"not a database" * 100)
    done = call("show", store, "--json")
    found = models(done.document)
    assert done.code == 0
    assert found["sessions"]["health"] == "fail"
    assert found["sessions"]["problems"]
    assert found["documents"]["health"] == "ok"


def test_only_the_newest_spaces_are_opened(store, monkeypatch, capsys):
    copies = [path_of(store, f"did:web:n{number}.example") for number in range(30)]
    for path in copies:
        shutil.copyfile(path_of(store, DID), path)
    opened = []
    read = fourfold.Store.space

    def counting(self, did, *rest, **options):
        opened.append(did)
        return read(self, did, *rest, **options)

    monkeypatch.setattr(fourfold.Store, "space", counting)
    assert run(["show", str(store)]) == 0
    assert len(opened) == overview.SPACES_SAMPLED
    text = capsys.readouterr().out
    assert "31 spaces, 60 commits in the 20 newest" in text


def test_counts_stop_at_a_limit(store, monkeypatch, capsys):
    with fourfold.open(store) as opened:
        for number in range(5):
            opened.streams.create(f"more/{number}", "application/json")
    monkeypatch.setattr(overview, "COUNT_MAX", 3)
    monkeypatch.setattr(overview, "STREAMS_SUMMED_MAX", 2)
    assert run(["show", str(store)]) == 0
    text = capsys.readouterr().out
    assert "3 streams or more  " in text
    assert text.count("or more") == 1


def test_sizes_stop_at_a_limit_of_files(store, monkeypatch, capsys):
    monkeypatch.setattr(overview, "FILES_MAX", 1)
    assert run(["show", str(store)]) == 0
    assert "iB or more" in capsys.readouterr().out


def test_store_of_the_demo_has_all_models_and_no_leftovers(call):
    assert call("demo", "mine", "--deep").code == 0
    found = models(call("show", "mine", "--json").document)
    assert all(model["count"] for model in found.values())
    assert {model["health"] for model in found.values()} == {"ok"}
    findings = call("doctor", "mine", "--json").document["findings"]
    [leftovers] = [finding for finding in findings if finding["check"] == "leftovers"]
    assert leftovers["status"] == "ok"
