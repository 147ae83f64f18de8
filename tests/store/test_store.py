"""A store is one folder, opened and closed as one thing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

import fourfold
from fourfold import errors


def test_opening_a_new_folder_makes_a_private_store(root, open_log):
    with fourfold.open(root) as store:
        assert open_log(store).add("a") == 1
    assert (root / "fourfold.toml").read_text().splitlines().count("format = 1") == 1
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_what_was_written_is_there_after_reopening(root, open_log):
    with fourfold.open(root) as store:
        open_log(store).add("a")
    with fourfold.open(root) as store:
        log = open_log(store)
        assert log.entries() == [(1, "a")]
        assert log.add("b") == 2


def test_a_database_is_opened_once_per_store(root, open_log):
    with fourfold.open(root) as store:
        assert open_log(store).database is open_log(store).database


@pytest.mark.parametrize("name", ["", "../up", "a/b", "A", ".hidden", "a\x00b", "x" * 200, "a..b"])
def test_bad_database_name_is_refused_before_path_is_built(root, name):
    with fourfold.open(root) as store, pytest.raises(errors.InvalidInput):
        store.database(name)
    assert not (root / "databases").exists()


def test_a_folder_with_other_things_in_it_is_left_alone(root):
    root.mkdir()
    (root / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(errors.InvalidInput, match="not empty"):
        fourfold.open(root)
    assert [p.name for p in root.iterdir()] == ["holiday.jpg"]


def test_a_file_where_the_store_should_be_is_refused(root):
    root.write_text("x")
    with pytest.raises(errors.StorageError):
        fourfold.open(root)


def test_reading_a_missing_store_is_refused_and_creates_nothing(root):
    with pytest.raises(errors.NotFound):
        fourfold.open(root, mode="r")
    assert not root.exists()


def test_a_reader_in_another_process_sees_what_a_writer_commits(root, open_log):
    script = (
        "import fourfold, sys\n"
        "with fourfold.open(sys.argv[1], mode='r') as s:\n"
        "    with s.database('log').read() as r: print(r.value('SELECT count(*) FROM entry'))\n"
    )
    with fourfold.open(root) as store:
        log = open_log(store)
        for expected in (1, 2):
            log.add("x")
            # A reader that does not know the schema is refused, so it gets the same schema.
            code = script.replace(
                "s.database('log')",
                "s.database('log', migrations=[fourfold.kernel.Migration(1, 'entry', "
                "'CREATE TABLE entry (number INTEGER PRIMARY KEY, text TEXT NOT NULL)')])",
            )
            out = subprocess.run(
                [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True
            )
            assert out.stdout.strip() == str(expected)


def test_a_reader_cannot_write(root, open_log):
    with fourfold.open(root) as store:
        open_log(store).add("a")
    with fourfold.open(root, mode="r") as store, pytest.raises(errors.ReadOnly):
        open_log(store).add("b")


def test_error_of_a_second_writer_names_the_first(root, open_log):
    with fourfold.open(root) as first, fourfold.open(root) as second:
        open_log(first)
        with pytest.raises(errors.WriterLocked, match="this process"):
            open_log(second)


def test_a_store_in_memory_is_gone_after_closing(open_log):
    store = fourfold.open(":memory:")
    assert open_log(store).add("a") == 1
    folder = store.root
    assert folder.exists()
    store.close()
    assert not folder.exists()


def test_a_closed_store_refuses_everything(root, open_log):
    store = fourfold.open(root)
    log = open_log(store)
    store.close()
    store.close()
    for call in (
        lambda: open_log(store),
        store.verify,
        lambda: log.add("x"),
        lambda: store.objects,
    ):
        with pytest.raises(errors.Closed):
            call()


def test_settings_reach_the_kernel(root, open_log):
    with fourfold.open(
        root, settings={"kernel.queue_requests_max": 1, "kernel.group_requests_max": 1}
    ) as s:
        database = open_log(s).database
        assert database._options.group.queue_requests_max == 1


def test_a_misspelt_setting_stops_the_opening(root):
    with pytest.raises(errors.InvalidConfig, match="reader_max"):
        fourfold.open(root, settings={"kernel.reader_max": 1})


def test_a_store_from_the_future_is_refused(root):
    fourfold.open(root).close()
    toml = root / "fourfold.toml"
    toml.write_text(toml.read_text().replace("format = 1", "format = 99"))
    with pytest.raises(errors.FutureFormat):
        fourfold.open(root)


def test_objects_live_in_the_store_by_default(root):
    with fourfold.open(root) as store:
        store.objects.put("a/b", b"x")
        assert store.objects.get("a/b").data == b"x"
    assert any((root / "objects").rglob("*"))


def test_metrics_and_health_cover_every_open_database(root, open_log):
    with fourfold.open(root) as store:
        open_log(store, "one").add("a")
        open_log(store, "two").add("b")
        assert set(store.health()) == {"databases/one.sqlite", "databases/two.sqlite"}
        assert all(health.ready for health in store.health().values())
        assert 'database="two.sqlite"' in store.metrics_text()


def test_the_environment_is_one_layer_of_settings(root, monkeypatch):
    monkeypatch.setitem(os.environ, "FOURFOLD_KERNEL_READERS_MAX", "3")
    with fourfold.open(root) as store:
        assert store.settings.kernel.readers_max == 3


def test_archive_of_streams_publishes_positions_before_it_collects(root):
    with fourfold.open(root) as store:
        store.streams.create("orders", "application/json").append({"id": 1})
        store.publish()
    with fourfold.open(root) as store:
        store.streams["orders"].append({"id": 2})
        store.streams.archive.publish_all()
        before = len(store.points())
        store.streams.archive.collect(grace_s=0)
        assert len(store.points()) == before + 1
