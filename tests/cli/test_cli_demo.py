"""`fourfold demo`: the story runs on real processes, checks itself, and leaves a store."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from cli_process import finish, start

import fourfold
from fourfold.cli.demo.check import expect
from fourfold.cli.demo.server import HOST, DemoServer
from fourfold.cli.demo.shop import DID, EVENTS, ORDER, SESSION, STREAM
from support.documented_json import documented_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder):
    """The result of `fourfold demo mine --no-spark` in a folder, without a terminal."""
    process = start(
        *("demo", "mine", "--no-spark"),
        cwd=folder,
        home=folder.parent,
        environ={},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return finish(process)


def test_demo_without_a_terminal_runs_every_step_and_ends(demo, folder):
    assert demo.code == 0, demo.err
    assert demo.err == ""
    first, second, *_ = demo.out.splitlines()
    assert re.fullmatch(r"Explorer  http://127\.0\.0\.1:\d+/", first)
    assert second == f"Store     {folder / 'mine'}"
    titles = re.findall(r"^(\d)\. (.+?) +[\d.]+ s$", demo.out, re.MULTILINE)
    assert [number for number, _ in titles] == ["1", "2", "3"]
    for text in (
        "conflict at /total (70.0 or 67.5); resolved: 67.5",
        f"{EVENTS} events written; a reader saw each of them once and in order",
        "4 calls were recorded, 1 was made",
        "All as expected",
        f"`fourfold open {folder / 'mine'}`",
    ):
        assert text in demo.out
    with pytest.raises(URLError):
        urlopen(first.split()[-1])
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_demo_leaves_a_sound_store_with_its_history(demo, folder, call):
    assert demo.code == 0
    with fourfold.open(folder / "mine", mode="r") as store:
        space = store.space(DID)
        assert space[ORDER]["total"] == 67.5
        assert space.history(ORDER)[0].data["status"] == "draft"
        assert {branch.name for branch in space.branches.list()} >= {"discount", "wholesale"}
        assert len(store.streams.open(STREAM)) == EVENTS
        view = store.sessions.open(SESSION).read()
        assert [turn["status"] for turn in view.turns] == ["final"]
        assert len(view.evals) == 5
        assert len(store.graphs.open("suppliers").objects("edge")) == 4
    findings = call("doctor", folder / "mine", "--json").document["findings"]
    assert not [finding for finding in findings if finding["status"] == "fail"]


def test_demo_as_json_lists_its_steps(call):
    document = call("demo", "mine", "--no-spark", "--json").document
    assert document.keys() == documented_json("demo").keys()
    assert document["root"] == str(call.folder / "mine")
    orders, stream, agent = document["steps"]
    assert orders["conflicts"] == ["/total"]
    assert stream["seen"] == EVENTS
    assert agent["repeated"] == ["model.answer"]


def test_deep_demo_runs_its_acts(call):
    document = call("demo", "--deep", "--json").document
    assert document["root"] is None
    assert len(document["acts"]) == 10


def test_demo_in_a_terminal_serves_until_interrupted(tmp_path):
    terminal, inner = os.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-m", "fourfold", "demo", str(tmp_path / "mine"), "--no-spark"],
        stdout=inner,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environ,
    )
    os.close(inner)
    try:
        printed = b""
        deadline = time.monotonic() + 120
        while b"until you press Ctrl-C" not in printed and time.monotonic() < deadline:
            printed += os.read(terminal, 4096)
        address = re.search(rb"http://127\.0\.0\.1:\d+/", printed)
        with urlopen(address[0].decode()) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    with pytest.raises(URLError):
        urlopen(address[0].decode())


def test_existing_folder_is_refused(call):
    (call.folder / "mine").mkdir()
    done = call("demo", "mine", "--json")
    assert done.error["kind"] == "already_exists"


def test_step_that_is_not_as_expected_fails():
    expect("sum", 1, 1)
    with pytest.raises(AssertionError, match="sum: expected 2, got 1"):
        expect("sum", 1, 2)


def test_address_of_the_demo_needs_no_import_of_the_store():
    """The address is printed first, also on a busy machine, where imports take seconds."""
    code = "import sys, fourfold.cli.demo; print([m for m in sys.modules if 'fourfold.store' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_browser_may_open_the_demo_before_its_server_has_started(tmp_path):
    server = DemoServer(tmp_path / "mine")
    with socket.create_connection((HOST, int(server.url.split(":")[-1].strip("/")))) as early:
        early.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with server.running():
            server.await_ready()
            assert early.recv(15) == b"HTTP/1.1 200 OK"


def test_server_that_fails_to_start_is_reported(tmp_path):
    (tmp_path / "mine").write_text("a file, and not a folder")
    server = DemoServer(tmp_path / "mine")
    with (
        server.running(),
        pytest.raises(fourfold.errors.StorageError, match="did not start"),
    ):
        server.await_ready()


def test_listen_fd_must_be_a_listening_socket(call, tmp_path):
    with (tmp_path / "file").open("w") as file, socket.socket() as idle:
        for number in (99_999, file.fileno(), idle.fileno()):
            done = call("serve", "mine", "--listen-fd", str(number), "--json")
            assert done.error["kind"] == "invalid_input"
            assert "must be a TCP socket that listens" in done.error["message"]
