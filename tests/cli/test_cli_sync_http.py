"""`fourfold app sync run`, `pull` and `push` with a server, which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fourfold
from fourfold.cli import main
from support.forked_process import ForkedProcess

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)

    def run(*arguments, code=0):
        found = main.run([*map(str, arguments), "--json"])
        printed = capfd.readouterr()
        assert found == code, printed.out + printed.err
        return json.loads(printed.out) if code == 0 else json.loads(printed.err)["error"]

    return run


@pytest.fixture
def people(call, tmp_path):
    """Alice, with a folder, and Bob, with a server that knows her."""
    keys = {name: call("app", "sync", "key", f"{name}.key")["public_key"] for name in ("a", "b")}
    for name in ("a", "b"):
        call("app", "register", name, "messages")
        call("app", "type", name, "messages", "parent", "message")
        call("app", "sync", "domain", name, "talk", 1)
        call("app", "sync", "identities", name, "--add", keys[name])
    call("app", "sync", "peer", "b", keys["a"], "--allow", "talk")
    secret = call(
        *("key", "add", "b", "--scope", "sync", "--model", "graphs", "--prefix", keys["a"])
    )["key"]
    server = Served(tmp_path / "b", options=("--sync-key", str(tmp_path / "b.key")))
    url = f"http://127.0.0.1:{server.port}"
    call("app", "sync", "peer", "a", keys["b"], "--endpoint", url, "--allow", "talk")
    access = tmp_path / "access"
    access.write_text(f"# keys of peers\n{url} {secret}\n")
    access.chmod(0o600)
    yield SimpleNamespace(call=call, server=server, url=url, access=access)
    server.kill()


def write(people, root, text):
    message = {"op": "parent_create", "type_key": "message", "payload": {"sync_flags": 1}}
    people.call("app", "insert", root, "messages", json.dumps(message), "--owner", 1)


def count(root):
    with fourfold.open(root) as store:
        assert store.graphs.verify() == []
        return len(store.graphs.current_parents(store.graphs.app("messages").app_id))


def test_pull_push_and_one_round(people):
    sync = lambda verb, *more, code=0: people.call(  # noqa: E731
        *("app", "sync", verb, "a", people.url, "--access", people.access, *more), code=code
    )
    write(people, "a", "hers")
    (pushed,) = sync("push", "--key", "a.key")["domains"]
    assert (pushed["pushed"], pushed["in_step"]) == (1, True)
    (again,) = sync("push", "--domain", "talk")["domains"]
    assert again["pushed"] == 0
    (pulled,) = sync("pull")["domains"]
    assert (pulled["pulled"], pulled["in_step"]) == (0, True)
    (once,) = sync("run", "--key", "a.key", "--once")["domains"]
    assert once["in_step"]
    people.server.stop()
    assert count("b") == 1
    people.server.start()


def test_wrong_access_is_refused(people):
    def pull(code):
        return people.call(
            *("app", "sync", "pull", "a", people.url, "--access", people.access), code=code
        )

    people.access.chmod(0o644)
    assert "chmod 600" in pull(6)["hint"]
    people.access.chmod(0o600)
    people.access.write_text("a line")
    assert "access:1" in pull(2)["message"]
    people.access.write_text(f"{people.url} ff_wrong\n")
    assert pull(6)["kind"] == "unauthorized"
    unknown = people.call("app", "sync", "run", "a", "http://127.0.0.1:1", code=3)
    assert "no peer has the endpoint" in unknown["message"]
    people.call("app", "register", "alone", "messages")
    alone = people.call("app", "sync", "run", "alone", code=3)
    assert "no peer has a URL" in alone["message"]


def test_run_continues_after_the_server_and_itself_were_killed(people):
    write(people, "a", "one")
    options = ("--key", "a.key", "--access", str(people.access))
    command = ["-m", "fourfold", "app", "sync", "run", "a", people.url, *options, "--json"]

    def until(process, is_done):
        for line in process.stdout:
            document = json.loads(line)
            if is_done(document):
                return
        raise AssertionError("the command ended")

    def in_step(document):
        return not document["error"] and document["domains"][0]["in_step"]

    def start():
        return ForkedProcess(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()

    process = start()
    until(process, in_step)
    people.server.kill()
    until(process, lambda document: document["error"])
    people.server.start()
    until(process, in_step)
    end(process)
    write(people, "a", "two")
    process = start()
    until(process, lambda document: in_step(document) and document["domains"][0]["pushed"] == 1)
    end(process)
    people.server.stop()
    assert count("b") == count("a") == 2
    people.server.start()
