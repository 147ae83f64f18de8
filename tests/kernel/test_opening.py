"""Opening: what is not ours is refused untouched, and a failure leaves no trace."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import ledger
import pytest

from fourfold.errors import (
    ForeignFile,
    FormatError,
    FourfoldError,
    InvalidInput,
    NotFound,
    StorageError,
    WriterLocked,
)
from fourfold.kernel import Database, Migration, holder, inspection, profiles

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def files(folder):
    """What is in the folder, but for the lock file, which only names its holder."""
    return sorted(each.name for each in folder.iterdir() if each.suffix != ".lock")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_database_has_application_id_and_metadata(path):
    with ledger.open_ledger(path) as db, db.read() as snapshot:
        assert snapshot.value("PRAGMA application_id") == 0x46344C44
        facts = dict(snapshot.all("SELECT key, value FROM kernel_meta"))
    assert facts["model"] == "plain"
    assert len(facts["database_id"]) == 32
    with ledger.open_ledger(path) as db, db.read() as snapshot:
        assert dict(snapshot.all("SELECT key, value FROM kernel_meta")) == facts


def test_two_databases_have_two_identities(path):
    ledger.open_ledger(path).close()
    ledger.open_ledger(path.with_name("other.db")).close()
    ids = {inspection.inspect(each).database_id for each in path.parent.glob("*.db")}
    assert len(ids) == 2


def test_foreign_database_is_refused_unchanged(path):
    ledger.edit(path, "CREATE TABLE theirs (a)", "INSERT INTO theirs VALUES (1)")
    before = path.read_bytes()
    for mode in ("rw", "r"):
        with pytest.raises(ForeignFile, match="not of Fourfold") as caught:
            ledger.open_ledger(path, mode=mode)
        assert "another path" in caught.value.hint
    assert path.read_bytes() == before
    assert files(path.parent) == ["ledger.db"]


def test_empty_database_of_other_application_is_refused(path):
    ledger.edit(path, "PRAGMA application_id = 7", "CREATE TABLE t (a)", "DROP TABLE t")
    before = path.read_bytes()
    with pytest.raises(ForeignFile):
        ledger.open_ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("size", [2, 100, 511, 512, 4096, 100_000])
def test_file_that_is_not_a_database_is_refused_unchanged(path, size):
    noise = bytes((7 * n + 3) % 251 for n in range(size))
    path.write_bytes(noise)
    for mode in ("rw", "r"):
        with pytest.raises(ForeignFile):
            ledger.open_ledger(path, mode=mode)
    assert path.read_bytes() == noise
    assert files(path.parent) == ["ledger.db"]


def test_empty_file_becomes_a_database(path):
    path.touch(0o600)
    with pytest.raises(FormatError):
        ledger.open_ledger(path, mode="r")
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
        ledger.assert_dense(db, 1)


def test_creation_waits_for_reader_that_inspects_the_empty_file(path):
    path.write_bytes(b"")
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM sqlite_master").get == 0
    end = threading.Timer(0.2, reader.execute, ["ROLLBACK"])
    end.start()
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        db.transact(ledger.put("x"))
        ledger.assert_dense(db, 1)
    end.join()
    reader.close()


def test_database_of_another_model_is_refused_unchanged(path):
    Database.open(path, profile=profiles.STREAMS).close()
    before = path.read_bytes()
    for mode in ("rw", "r"):
        with pytest.raises(ForeignFile, match="expected a database of 'graphs', found 'streams'"):
            Database.open(path, profile=profiles.GRAPHS, mode=mode)
    assert path.read_bytes() == before


def test_folder_at_path_of_file_is_refused(path):
    path.mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        ledger.open_ledger(path)
    with pytest.raises(StorageError):
        ledger.open_ledger(path, mode="r")
    assert list(path.iterdir()) == []
    assert holder(path) is None


@pytest.mark.parametrize("below", ["ledger.db", "deeper/ledger.db"])
def test_file_at_path_of_folder_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="not a folder"):
        ledger.open_ledger(tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_database_that_does_not_exist_cannot_be_read(path):
    with pytest.raises(NotFound, match="the database does not exist"):
        ledger.open_ledger(path, mode="r")
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("mode", ["w", "", "RW", "rb"])
def test_unknown_mode_is_refused(path, mode):
    with pytest.raises(InvalidInput, match="must be 'r' or 'rw'"):
        ledger.open_ledger(path, mode=mode)
    assert list(path.parent.iterdir()) == []


def test_failed_open_of_new_path_leaves_no_file_or_lock(path):
    folder = path.parent / "new"
    broken = Migration(1, "broken", "CREATE TABLE a (x); SELEC")
    with pytest.raises(FormatError):
        Database.open(folder / "ledger.db", migrations=[broken])
    assert files(folder) == []
    assert holder(folder / "ledger.db") is None
    with ledger.open_ledger(folder / "ledger.db") as db:
        db.transact(ledger.put("x"))


def test_failed_open_of_existing_path_releases_lock(path):
    ledger.edit(path, "CREATE TABLE theirs (a)")
    for _ in range(2):
        with pytest.raises(ForeignFile):
            ledger.open_ledger(path)
    assert holder(path) is None


def test_interrupt_while_opening_leaves_no_file_and_no_lock(path):
    def interrupt(_txn):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Database.open(path, migrations=[Migration(1, "slow", "CREATE TABLE a (x)", interrupt)])
    assert files(path.parent) == []
    ledger.open_ledger(path).close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_new_folders_are_private_whatever_the_umask(tmp_path, umask):
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        path = tmp_path / "a" / "b" / "c" / "ledger.db"
        with ledger.open_ledger(path) as db:
            db.transact(ledger.put("x"))
            db.backup(tmp_path / "a" / "backups" / "copy.db")
            modes = {each.name: mode_of(each) for each in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    folders = {name: modes.pop(name) for name in ("a", "b", "c", "backups")}
    assert set(folders.values()) == {0o700}
    assert set(modes) >= {"ledger.db", "ledger.db-wal", "ledger.db.lock", "copy.db", "copy.db.json"}
    assert set(modes.values()) == {0o600}, modes
    assert mode_of(tmp_path) == 0o755


def test_mode_of_existing_folder_is_not_changed(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    folder.chmod(0o750)
    ledger.open_ledger(folder / "ledger.db").close()
    assert mode_of(folder) == 0o750


def test_link_resolves_to_same_database_lock_and_log(path):
    link = path.with_name("link.db")
    link.symlink_to(path)
    with ledger.open_ledger(link, profile=profiles.PLAIN.with_(synchronous="NORMAL")) as db:
        db.transact(ledger.put("x"))
        assert db.path == path
        with pytest.raises(WriterLocked):
            ledger.open_ledger(path)
        assert db.metrics().wal_size_bytes > 0
        assert db.make_durable() == {"entry": 1}
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["x"]


STRANGER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        # The bytes that every connection of SQLite keeps locked.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except BlockingIOError:
        sys.exit(0)
sys.exit("the file is not locked")
"""


def test_inspection_keeps_locks_of_open_database(path):
    """A plain open and close of the file would drop every lock of this process on it: another
    program would then take the log for abandoned, and remove it.
    """
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("before"))
        inspection.inspect(path)
        inspection.check(path)
        inspection.back_up(path, path.with_name("copy.db"))
        db.backup(path.with_name("copy too.db"))
        db.integrity_check()
        db.health()
        subprocess.run([sys.executable, "-c", STRANGER, str(path)], check=True)


@pytest.fixture
def open_folder():
    """A folder that a user without privileges can reach, also when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="fourfold-test-"))
    folder.chmod(0o755)
    yield folder
    for each in (folder, *folder.rglob("*")):
        if each.is_dir():
            each.chmod(0o700)
    shutil.rmtree(folder)


def given_away(path, mode):
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    path.chmod(mode)


def unprivileged(mode, path):
    """The outcome of opening `path` as a user whom permissions bind."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    done = subprocess.run(
        [sys.executable, HERE / "other_process.py", "try", mode, path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def read_only_folder(open_folder):
    """A ledger with one entry, in a folder that its owner cannot write."""
    folder = open_folder / "store"
    with ledger.open_ledger(folder / "ledger.db") as db:
        db.transact(ledger.put("kept"))
    for each in folder.iterdir():
        given_away(each, 0o600)
    given_away(folder, 0o500)
    return folder


@pytest.mark.parametrize("lock_file", [True, False])
def test_read_only_folder_is_refused_for_writing(read_only_folder, lock_file):
    path = read_only_folder / "ledger.db"
    if not lock_file:
        read_only_folder.chmod(0o700)
        path.with_name("ledger.db.lock").unlink()
        read_only_folder.chmod(0o500)
    before = path.read_bytes()
    found = unprivileged("rw", path)
    assert found["kind"] == "read_only"
    assert "permission" in found["hint"]
    assert path.read_bytes() == before
    assert files(read_only_folder) == ["ledger.db"]


def test_database_in_read_only_folder_can_be_read(read_only_folder):
    assert unprivileged("r", read_only_folder / "ledger.db") == {"bodies": ["kept"]}
    assert files(read_only_folder) == ["ledger.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folder_writable_by_others_is_not_opened_as_immutable(open_folder):
    folder = open_folder / "store"
    with ledger.open_ledger(folder / "ledger.db") as db:
        db.transact(ledger.put("kept"))
    for each in folder.iterdir():
        given_away(each, 0o600)
    # The folder belongs to another user, who may write; this user may only look.
    folder.chmod(0o755)
    found = unprivileged("r", folder / "ledger.db")
    assert found["kind"] == "read_only"
    assert "backup" in found["hint"]


@pytest.mark.parametrize("name", ["new.db", "deeper/new.db", "deeper/still/new.db"])
def test_nothing_is_created_in_read_only_folder(read_only_folder, name):
    found = unprivileged("rw", read_only_folder / name)
    assert found["kind"] == "read_only"
    assert files(read_only_folder) == ["ledger.db"]


def test_read_only_file_is_refused_for_writing(read_only_folder):
    path = read_only_folder / "ledger.db"
    read_only_folder.chmod(0o700)
    path.chmod(0o400)
    before = path.read_bytes()
    assert unprivileged("rw", path)["kind"] == "read_only"
    assert path.read_bytes() == before
    assert unprivileged("r", path) == {"bodies": ["kept"]}


def test_unreadable_file_raises_typed_error(read_only_folder):
    path = read_only_folder / "ledger.db"
    path.chmod(0o000)
    for mode in ("r", "rw"):
        found = unprivileged(mode, path)
        assert found["kind"] in {"storage", "read_only"}
        assert found["hint"]


def outcome_of_opening(path, mode):
    try:
        ledger.open_ledger(path, mode=mode).close()
    except Exception as error:  # noqa: BLE001  (each kind is looked at below)
        return error
    return None


def test_driver_error_never_leaves_the_kernel(path):
    """Whatever SQLite says to a damaged header, callers get an error of Fourfold's tree."""
    ledger.open_ledger(path).close()
    whole = path.read_bytes()
    refused = 0
    for at in range(100):
        for mode in ("r", "rw"):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            error = outcome_of_opening(path, mode)
            assert error is None or isinstance(error, FourfoldError), f"byte {at}: {error!r}"
            refused += error is not None
            for side in ("-wal", "-shm", "-journal"):
                Path(f"{path}{side}").unlink(missing_ok=True)
    # The magic text, the page size and Fourfold's mark at the least.
    assert refused >= 2 * (16 + 2 + 4)
