"""The job `verify` finds and names all damage, and nothing else."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys

import pytest
from seeded_damage import damage, lived_in

import fourfold
from fourfold import limits
from fourfold.models.documents import HISTORIES
from fourfold.pipeline import jobs, store_files, verify_tasks
from fourfold.pipeline.documents import verify
from fourfold.pipeline.jobs.verify import Verify
from fourfold.pipeline.models import model_tables

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Intact stores, one for each history, with and without gc."""
    folder = tmp_path_factory.mktemp("sound")
    return [
        lived_in(folder / f"{history}-{collected}", history, collected=collected)
        for history in sorted(HISTORIES)
        for collected in (False, True)
    ]


@pytest.fixture
def home(tmp_path):
    """A store that records the runs."""
    root = tmp_path / "home"
    fourfold.open(root).close()
    return root


def copies(sound, folder, count):
    """Copy the stores in turn; return the files of their spaces."""
    files = []
    for number in range(count):
        path = sound[number % len(sound)]
        root = folder / f"store{number:04}"
        (root / "spaces").mkdir(parents=True)
        shutil.copy(path.parents[1] / "fourfold.toml", root)
        files.append(shutil.copy(path, root / "spaces" / path.name))
    return files


def verified(spark, home, folder, into):
    done = jobs.run("verify", home, {"roots": f"{folder}/*", "into": into}, spark=spark)
    result = {}
    for line in into.read_text().splitlines():
        each = json.loads(line)
        result.setdefault(each["file"], []).append(each)
    return done, result


def named(findings, done):
    """Return True if the problems lead to the damaged row or its commit, or, if it cannot be read
    any more, to the pages of the file.
    """
    tables = {each["table"] for each in findings}
    if {"pages", "file"} & tables:
        return True
    if "commit" in tables and {"revision", "occurrence"} & done.tables and not done.values:
        return True
    return any(
        each["table"] in done.tables or done.values & set(each.get("key", {}).values())
        for each in findings
    )


def every_damage_is_found(spark, home, sound, tmp_path, count, seed):
    folder = tmp_path / "many"
    files = copies(sound, folder, count + len(sound))
    draw = random.Random(seed)
    wrong = {str(path): damage(path, draw) for path in files[len(sound) :]}
    done, result = verified(spark, home, folder, tmp_path / "report.ndjson")
    for path, what in wrong.items():
        assert path in result, f"went unnoticed: {what}"
        assert named(result[path], what), (what, result[path])
    assert set(result) == set(wrong), "a sound file was called damaged"
    assert done.report["files"] == len(files)
    assert done.report["sound"] == len(sound)
    kinds = {what.what.split()[0] for what in wrong.values()}
    assert kinds == {"byte", "deleted", "doubled", "changed"}


def test_verify_reports_only_damaged_spaces(spark, home, sound, tmp_path):
    every_damage_is_found(spark, home, sound, tmp_path, 24, seed=11)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_verify_finds_two_hundred_damages(spark, home, sound, tmp_path, seed):
    every_damage_is_found(spark, home, sound, tmp_path, 200, seed)


def test_verify_needs_no_writer_lock(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        space = store.space("did:key:z6MkLive")
        space.set("a", {"n": 1})
        done = jobs.run("verify", root, spark=spark)
        assert (done.report["files"], done.report["faults"]) == (1, 0)
        # A lock taken meanwhile would have blocked the writer.
        space.set("a", {"n": 2})
    assert jobs.run("verify", root, spark=spark).report["faults"] == 0


def test_verify_reports_foreign_and_missing_files(spark, home, sound, tmp_path):
    files = copies(sound, tmp_path / "many", 3)
    files[0].write_bytes(b"not a database" * 100)
    files[1].write_bytes(b"")
    done, actual = verified(spark, home, tmp_path / "many", tmp_path / "report.ndjson")
    assert set(actual) == {str(files[0]), str(files[1])}
    assert done.report["sound"] == 1
    assert done.lines


def test_verify_in_parts_equals_whole_file(sound, monkeypatch, tmp_path):
    """Without Spark: the parts of a file find the same problems as the whole."""
    monkeypatch.setattr(limits, "VERIFY_PART_BYTES", 50_000)
    draw = random.Random(3)
    files = copies(sound, tmp_path / "many", 2 * len(sound))
    for path in files[len(sound) :]:
        damage(path, draw)
    for path in files:
        [file] = store_files.find_files([path.parents[1]], model_tables("documents"))
        parts = verify.units(file)
        actual = {each.problem for unit in parts for each in verify_tasks.iter_problems(unit)}
        whole = verify_tasks.Unit(file.path, file.space, file.bytes)
        expected = {each.problem for each in verify_tasks.iter_problems(whole)}
        assert actual == expected
        if path in files[: len(sound)]:
            assert not actual
            assert len(parts) > 15
            assert {unit.part is not None for unit in parts} == {True, False}


def test_killed_verify_resumes(spark, home, sound, tmp_path, monkeypatch):
    class Killed(Verify):
        def commit(self, context, plan, result):
            raise KeyboardInterrupt

    copies(sound, tmp_path / "many", 2)
    options = {"roots": f"{tmp_path}/many/*"}
    with pytest.raises(KeyboardInterrupt):
        jobs.run(Killed(), home, options, spark=spark)

    def never(*_):
        raise AssertionError("a task was done again")

    monkeypatch.setattr(Verify, "_check", never)
    done = jobs.run("verify", home, options, spark=spark)
    assert done.resumed
    assert done.report["sound"] == 2


def test_verdict_is_error_when_damaged():
    verdict = jobs.get_job("verify").verdict
    assert verdict({"faults": 0, "first": []}) is None
    wrong = verdict({"faults": 1, "first": [{"file": "f", "problem": "p"}]})
    assert wrong.kind == "corrupt_data"
    assert "f: p" in wrong.message


@pytest.mark.slow
def test_verify_command_reports_damage_and_exits_with_8(sound, tmp_path):
    [path] = copies(sound, tmp_path, 1)
    command = [sys.executable, "-m", "fourfold", "pipeline", "run", "verify", str(path.parents[1])]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    what = damage(path, random.Random(2))
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 8, what
    assert str(path) in done.stdout
    assert "corrupt_data" in done.stderr
