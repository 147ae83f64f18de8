"""The command `fourfold pipeline`: its output, its records, and its failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counting_job import Counting

import fourfold
from fourfold.cli import main
from fourfold.pipeline import jobs
from fourfold.pipeline.jobs.runner import unregister
from support.forked_process import ForkedProcess

DID = "did:web:shop.example"


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def call(capfd):
    """Run `fourfold pipeline ...` in this process; return exit code, output and errors."""

    def run(*arguments):
        capfd.readouterr()
        code = main.run(["pipeline", *map(str, arguments)])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def counting(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("1\n2\n")
    jobs.register(Counting())
    yield ["run", "count-lines", tmp_path / "store", "--input", folder, "--into", tmp_path / "out"]
    unregister("count-lines")


def test_registered_job_is_a_command_with_options(call, root, counting):
    assert "count-lines" in call("list")[1]
    code, out, _ = call("run", "count-lines", "--help")
    assert code == 0
    for word in ("--input", "--into", "--speed [slow|fast]", "--dry-run", "--skip-bad", "--master"):
        assert word in out
    code, out, err = call(*counting)
    assert (code, err) == (0, "")
    assert out == "count-lines: 2 rows read, 1 row written\n"


def test_status_shows_table_of_runs(call, root, counting, tmp_path):
    assert "no job has run yet" in call("status", root)[1]
    call(*counting)
    call(*counting)
    _, out, _ = call("history", root)
    assert [line.split()[2] for line in out.splitlines()] == ["STATE", "nothing", "done"]
    _, out, _ = call("history", root, "--limit", 1, "--job", "count-lines", "--json")
    [row] = json.loads(out)["runs"]
    assert (row["state"], row["target"]) == ("nothing", str(tmp_path / "out"))
    _, out, _ = call("status", root, "--json")
    assert len(json.loads(out)["runs"]) == 1


def test_status_shows_killed_run_as_interrupted(call, root, counting, tmp_path):
    child = Path(__file__).with_name("counting_job.py")
    options = [root, tmp_path / "in", tmp_path / "out", "run"]
    with ForkedProcess([child, *options]) as process:
        assert process.wait() == -9
    assert jobs.history(root)[0].state == "running"
    for command in ("status", "history"):
        _, out, _ = call(command, root, "--json")
        assert [run["state"] for run in json.loads(out)["runs"]] == ["interrupted"]
    assert "resumed an earlier run" in call(*counting)[1]


def test_dry_run_prints_plan_without_recording_run(call, root, counting):
    code, out, _ = call(*counting, "--dry-run", "--json")
    planned = json.loads(out)
    assert (code, planned["outcome"], planned["run"]) == (0, "planned", None)
    assert jobs.history(root) == []
    assert "would read 2 positions of 1 input " in call(*counting, "--dry-run")[1]


def test_failures_have_their_kind_and_exit_code(call, root, counting, tmp_path):
    for arguments, code, kind in [
        (["run", "nonsense", root], 2, "invalid_input"),
        (["run", "count-lines", root], 2, "invalid_input"),
        (["history", tmp_path], 3, "not_found"),
        (["history", root, "--job", "nonsense"], 3, "not_found"),
        (["run", "load", root, "--from", "nowhere", "--space", DID], 3, "not_found"),
        (["run", "load", root, "--space", DID], 2, "invalid_input"),
    ]:
        actual, out, err = call(*arguments)
        assert (actual, out) == (code, ""), err
        assert err.startswith(f"error[{kind}]: "), err
    assert call(*counting, "--fail", "broken")[0] == 70
    assert jobs.history(root)[0].state == "failed"


@pytest.mark.parametrize(
    ("remote", "code", "kind"),
    [
        ("http://spark.example", 2, "invalid_input"),
        ("sc://", 2, "invalid_input"),
        ("sc://127.0.0.1:port", 2, "invalid_input"),
        ("sc://127.0.0.1:1", 9, "storage"),
    ],
)
def test_unreachable_spark_connect_server_fails_fast(call, root, tmp_path, remote, code, kind):
    file = tmp_path / "notes.ndjson"
    file.write_text('{"id": "a"}')
    options = ["--from", file, "--space", DID, "--remote", remote]
    actual, _, err = call("run", "load", root, *options)
    assert actual == code, err
    assert err.startswith(f"error[{kind}]: ")
    assert jobs.history(root)[0].state == "failed"


@pytest.mark.spark
def test_load_command_uses_running_session(call, root, spark, tmp_path):
    file = tmp_path / "notes.ndjson"
    file.write_text('{"id": "a", "n": 1}\n{"id": "b"}\nnonsense\n')
    arguments = ["run", "load", root, "--from", file, "--space", DID]
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error[invalid_input]: row 2 of partition 0"), err
    code, out, _ = call(*arguments, "--skip-bad")
    assert code == 0
    output, left_out = out.splitlines()
    assert output.startswith("load: 2 rows into 1 space; 1 bad row skipped")
    assert left_out.startswith("skipped: row 2 of partition 0")
    assert call(*arguments, "--skip-bad")[1] == "load: nothing to do\n"
    assert spark.range(3).count() == 3
    with fourfold.open(root, mode="r") as store:
        assert store.space(DID).ids() == ["a", "b"]
