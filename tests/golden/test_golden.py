"""Stores of every released format open, verify, read as they did, take writes, and restore."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import from_revision
import golden_store
import pytest

import fourfold
from fourfold.cli import main
from fourfold.errors import FormatError
from fourfold.store import restore, verify_backup
from fourfold.store.restoration import rebuild

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "fourfold"
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())
CASES = [(version, name) for version in VERSIONS for name in golden_store.STORES]


@pytest.fixture
def golden(tmp_path):
    """Unpack one golden folder for this test alone."""

    def unpack(version, name):
        with tarfile.open(HERE / version / "stores.tar.xz") as tar:
            members = [entry for entry in tar if entry.name.split("/")[0] == name]
            tar.extractall(tmp_path, members=members, filter="data")
        return tmp_path / name

    return unpack


def expected_of(version, name):
    return json.loads((HERE / version / "expected.json").read_text(encoding="utf-8"))[name]


def plain(content):
    return json.loads(json.dumps(content))


def test_golden_files_exist():
    assert "0.1.0" in VERSIONS
    assert from_revision.checksums(SOURCE)


@pytest.mark.parametrize("version", VERSIONS)
def test_released_migrations_never_change(version):
    """A store that ran another text under the same number would be refused."""
    released = json.loads(from_revision.RELEASED.read_text(encoding="utf-8"))[version]
    current = from_revision.checksums(SOURCE)
    assert released
    assert {name: current.get(name) for name in released} == released


def test_golden_stores_are_made_from_a_revision(tmp_path, monkeypatch):
    """A copy of the present code stands for a revision: no history is needed for this test."""
    monkeypatch.setattr(from_revision, "HERE", tmp_path)
    monkeypatch.setattr(from_revision, "RELEASED", tmp_path / "released_migrations.json")
    from_revision.RELEASED.write_text("{}")

    def checkout(_revision, folder):
        shutil.copytree(SOURCE, folder / "src" / "fourfold")
        shutil.copytree(HERE, folder / "tests" / "golden")

    monkeypatch.setattr(from_revision, "checkout", checkout)
    from_revision.make("HEAD", "9.9.9")
    assert json.loads((tmp_path / "9.9.9" / "expected.json").read_bytes()).keys() == {
        *golden_store.STORES,
        "everything",
    }
    released = json.loads(from_revision.RELEASED.read_text(encoding="utf-8"))
    assert released["9.9.9"] == from_revision.checksums(SOURCE)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_golden_store_reads_what_it_read_when_made(golden, version, name):
    _, read = golden_store.STORES[name]
    with fourfold.open(golden(version, name)) as store:
        assert plain(read(store)) == expected_of(version, name)
        store.verify().raise_if_bad()


@pytest.mark.parametrize(("version", "name"), CASES)
def test_golden_store_reads_same_after_it_was_written_and_reopened(golden, version, name):
    root = golden(version, name)
    _, read = golden_store.STORES[name]
    with fourfold.open(root) as store:
        append_a_little(store, name)
        store.verify().raise_if_bad()
    with fourfold.open(root) as store:
        after = plain(read(store))
    assert is_continued(expected_of(version, name), after)


def append_a_little(store, name):
    if name in {"revisions", "facts"}:
        store.space(golden_store.DID).set("new", {"n": 1})
    elif name == "streams":
        store.streams.open("orders").append(b'{"id": 4}')
    elif name == "graphs":
        graphs = store.graphs
        app = graphs.app("contacts").app_id
        types = {row.type_key: row.id for row in graphs.list_types(app)}
        graphs.insert_parent(app, {"type_id": types["person"], "owner_identity": 1})
    else:
        store.sessions.append_event("research", {"type": "app/note", "number": -1})


def is_continued(before, after):
    """Return True if `after` has everything of `before`, unchanged where it is of the past."""
    if isinstance(before, dict):
        return all(
            key in after and is_continued(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list):
        return after[: len(before)] == before
    if isinstance(before, int) and not isinstance(before, bool):
        return after >= before
    return before == after or (len(str(before)) == 64 and len(str(after)) == 64)


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_backup_verifies_and_restores(golden, version, tmp_path):
    folder = golden(version, "backup")
    verify_backup(folder).raise_if_bad()
    restore(folder, tmp_path / "restored")
    with fourfold.open(tmp_path / "restored") as store:
        read = plain(golden_store.read_everything(store))
    assert read == expected_of(version, "everything")


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_backup_restores_to_store_that_can_be_backed_up(golden, version, tmp_path):
    """Restoring an earlier version may migrate files, which are copied first."""
    restored = tmp_path / "restored"
    restore(golden(version, "backup"), restored)
    assert not list(restored.glob("*/backups"))
    if version == "0.1.0":
        assert list((restored / "backups" / "migrations").rglob("v*.sqlite"))
    with fourfold.open(restored) as store:
        golden_store.read_everything(store)
        store.verify().raise_if_bad()
        store.backup(tmp_path / "again")
        store.streams.delete("log")
        assert not list((restored / "backups" / "migrations" / "streams").rglob("v*.sqlite"))
    verify_backup(tmp_path / "again").raise_if_bad()


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_archive_bootstraps_an_empty_store(golden, version, tmp_path):
    objects = golden(version, "everything") / "objects"
    settings = {"objects.url": objects.as_uri()}
    with fourfold.open(tmp_path / "rebuilt", settings=settings) as store:
        assert not rebuild(store).failures
        read = plain(golden_store.read_everything(store))
        store.verify().raise_if_bad()
    expected = expected_of(version, "everything")
    expected["streams"]["subscription"] = None  # Subscriptions are not published.
    assert read == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_published_store_goes_on_publishing(golden, version):
    root = golden(version, "everything")
    with fourfold.open(root) as store:
        store.space(golden_store.DID).set("new", {"n": 1})
        store.streams.open("orders").append(b'{"id": 4}')
        assert not store.publish().failures
        assert all(row.published == row.newest for row in store.published())


@pytest.mark.parametrize("name", ["streams", "sessions"])
def test_verify_says_that_migrations_are_pending(golden, name, capsys):
    root = golden("0.1.0", name)
    code = main.run(["verify", str(root)])
    message = capsys.readouterr().err
    assert code == FormatError.exit_code
    assert "migrations are pending" in message
    assert "nothing is damaged" in message
    with fourfold.open(root) as store:
        getattr(store, name)
    assert main.run(["verify", str(root)]) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_sessions_are_searched(golden, version):
    """The index of words is newer than these stores: the first search builds it."""
    with fourfold.open(golden(version, "sessions")) as store:
        [hit] = store.sessions.search("hi", prefix="openai-agents/")
        assert (hit.kind, hit.text) == ("message", "hi")
        store.verify().raise_if_bad()
