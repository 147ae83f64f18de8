"""Claims about `fourfold backup`, `restore` and `verify`: honest translations of the store."""

from __future__ import annotations

import signal
import subprocess
import time

from cli_process import finish, start

import fourfold
from fourfold._version import __version__
from fourfold.kernel import Migration


def flip(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_backup_can_be_verified_and_restored(call, root, tmp_path):
    copy, again = tmp_path / "copy", tmp_path / "again"
    done = call("backup", root, copy, "--json")
    assert done.code == 0
    assert done.document["destination"] == str(copy)
    assert done.document["databases"] == 1
    assert call("verify", copy, "--json").document["kind"] == "backup"

    done = call("restore", copy, again, "--json")
    assert done.code == 0
    assert done.document["root"] == str(again)
    assert call("verify", again, "--json").document == {
        "root": str(again),
        "kind": "store",
        "ok": True,
        "checked": [{"path": "databases/notes.sqlite", "what": "database", "problems": []}],
    }


def test_what_was_done_is_said_in_one_line(call, root, tmp_path):
    for arguments in (
        ["backup", root, tmp_path / "copy"],
        ["verify", tmp_path / "copy"],
        ["restore", tmp_path / "copy", tmp_path / "again"],
        ["verify", tmp_path / "again"],
    ):
        done = call(*arguments)
        assert (done.code, done.err) == (0, "")
        assert done.out.count("\n") == 1


def test_a_store_in_use_can_be_backed_up_and_verified(process, root, tmp_path):
    with fourfold.open(root) as store:
        store.database("notes")
        assert process("verify", root).code == 0
        assert process("backup", root, tmp_path / "copy").code == 0
    assert process("verify", tmp_path / "copy").code == 0


def test_ctrl_c_leaves_no_partial_backup_and_retry_works(call, tmp_path):
    root, copy = tmp_path / "large", tmp_path / "copy"
    table = Migration(1, "rows", "CREATE TABLE row (data BLOB) STRICT;")
    with fourfold.open(root) as store, store.database("rows", migrations=[table]).write() as txn:
        for _ in range(40):
            txn.execute("INSERT INTO row VALUES (zeroblob(1000000))")
    child = start(
        "backup",
        root,
        copy,
        cwd=tmp_path,
        home=tmp_path,
        environ={},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while child.poll() is None and not (tmp_path / ".copy.partial").exists():
        time.sleep(0.001)
    child.send_signal(signal.SIGINT)
    done = finish(child)
    if not copy.exists():
        assert done.code == 130
        assert "error[interrupted]: " in done.err
        assert call("backup", root, copy).code == 0
    assert call("verify", copy).code == 0
    assert not (tmp_path / ".copy.partial").exists()


def test_a_backup_never_replaces_anything(call, root, tmp_path):
    (tmp_path / "copy").mkdir()
    done = call("backup", root, tmp_path / "copy", "--json")
    assert done.code == 4
    assert done.error["kind"] == "already_exists"
    assert not list((tmp_path / "copy").iterdir())


def test_a_damaged_backup_is_reported_and_not_restored(call, root, tmp_path):
    copy = tmp_path / "copy"
    call("backup", root, copy)
    flip(copy / "databases" / "notes.sqlite")

    plain = call("verify", copy)
    assert plain.code == 8
    assert "databases/notes.sqlite" in plain.out
    assert plain.err.startswith("error[corrupt_data]: ")

    done = call("verify", copy, "--json")
    assert done.code == 8
    assert done.document["ok"] is False
    (damaged,) = [check for check in done.document["checked"] if check["problems"]]
    assert damaged["path"] == "databases/notes.sqlite"
    assert done.error["kind"] == "corrupt_data"
    assert "fourfold restore" in done.error["hint"]

    assert call("restore", copy, tmp_path / "again").code == 8
    assert not (tmp_path / "again").exists()


def test_a_damaged_store_is_reported(call, root):
    database = root / "databases" / "notes.sqlite"
    data = bytearray(database.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    database.write_bytes(data)
    done = call("verify", root, "--json")
    assert done.code == 8
    assert done.document["ok"] is False
    assert done.error["kind"] == "corrupt_data"


def test_restoring_over_the_same_state_keeps_the_old_file(call, root, tmp_path):
    call("backup", root, tmp_path / "copy")
    assert call("restore", tmp_path / "copy", root).code == 0
    names = [path.name for path in (root / "databases").iterdir()]
    assert any(".replaced-" in name for name in names)
    assert call("verify", root).code == 0


def test_backup_of_another_store_is_not_restored_over_this_one(call, root, tmp_path):
    call("backup", root, tmp_path / "copy")
    with fourfold.open(tmp_path / "other") as store:
        store.database("notes")
    done = call("restore", tmp_path / "copy", tmp_path / "other", "--json")
    assert done.code == 7
    assert done.error["kind"] == "foreign_file"


def test_an_unreadable_database_is_replaced_only_on_request(call, root, tmp_path):
    call("backup", root, tmp_path / "copy")
    database = root / "databases" / "notes.sqlite"
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    database.write_bytes(b"scrap" * 1000)
    done = call("restore", tmp_path / "copy", root, "--json")
    assert done.code != 0
    assert "--replace-unreadable" in done.error["hint"]
    assert call("restore", tmp_path / "copy", root, "--replace-unreadable").code == 0
    assert call("verify", root).code == 0


def test_the_version_that_wrote_a_backup_is_recorded(call, root, tmp_path):
    call("backup", root, tmp_path / "copy")
    assert __version__ in (tmp_path / "copy" / "backup.json").read_text()
