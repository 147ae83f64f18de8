"""A file has its name when it is whole; what could not be written leaves no file."""

from __future__ import annotations

import errno
import fcntl

import pytest

from fourfold.archive.temporary_files import held, put_in_place, sweep, unfinished
from fourfold.errors import DiskFull, StorageError


def written(temporary, final, error=None):
    with unfinished(temporary, "a file"):
        temporary.write_bytes(b"half")
        if error is not None:
            raise error
        put_in_place(temporary, final)


def test_a_whole_file_gets_its_name_and_its_folder(tmp_path):
    final = tmp_path / "deep" / "down" / "file"
    written(tmp_path / ".file.partial", final)
    assert final.read_bytes() == b"half"
    assert not (tmp_path / ".file.partial").exists()


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(errno.ENOSPC, "no room"), DiskFull),
        (OSError(errno.EDQUOT, "no quota"), DiskFull),
        (OSError(errno.EIO, "broken"), StorageError),
        (ValueError("no rows"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_one_that_fails_leaves_nothing_and_says_why(tmp_path, error, becomes):
    temporary, final = tmp_path / ".file.partial", tmp_path / "file"
    with pytest.raises(becomes) as raised:
        written(temporary, final, error)
    assert type(raised.value) is becomes
    assert list(tmp_path.iterdir()) == []
    if isinstance(error, OSError):
        assert "cannot write a file" in str(raised.value)


def test_a_file_that_is_being_written_is_not_swept(tmp_path):
    temporary, final = tmp_path / ".file.partial", tmp_path / "file"
    with held(temporary) as file:
        file.write(b"whole")
        sweep(temporary)
        put_in_place(temporary, final)
    assert final.read_bytes() == b"whole"


def test_abandoned_files_are_swept(tmp_path):
    temporary = tmp_path / ".file.partial"
    with held(temporary) as file:
        file.write(b"half")
    sweep(temporary)
    assert list(tmp_path.iterdir()) == []
    sweep(temporary)


def test_one_swept_before_it_is_held_is_made_again(tmp_path, monkeypatch):
    temporary, final = tmp_path / ".file.partial", tmp_path / "file"
    lock, swept = fcntl.flock, []

    def late(file, how):
        if not swept:
            swept.append(True)
            temporary.unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with held(temporary) as file:
        file.write(b"whole")
        file.flush()
        put_in_place(temporary, final)
    assert final.read_bytes() == b"whole"
