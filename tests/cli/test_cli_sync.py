"""`fourfold app sync`: two people, a lost laptop, a copied folder and a liar, by commands."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import msgspec
import pytest

import fourfold
from fourfold.cli import main
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import SignedEnvelope


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Run `fourfold ... --json` in an empty folder; return the document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)

    def run(*arguments, code=0):
        found = main.run([*map(str, arguments), "--json"])
        printed = capfd.readouterr()
        assert found == code, printed.out + printed.err
        return json.loads(printed.out) if code == 0 else printed.err

    return run


@pytest.fixture
def people(call):
    """Alice and Bob, each with a store, a key and the other as a peer of the domain `talk`."""
    keys = {name: call("app", "sync", "key", f"{name}.key")["public_key"] for name in ("a", "b")}
    for name, other in (("a", "b"), ("b", "a")):
        call("app", "register", name, "messages")
        call("app", "type", name, "messages", "parent", "message")
        call("app", "sync", "domain", name, "talk", 1)
        # The first identity of each store is its owner, the second the other.
        call("app", "sync", "identities", name, "--add", keys[name])
        call("app", "sync", "peer", name, keys[other], "--allow", "talk")
    return SimpleNamespace(call=call, keys=keys, packages=0)


def write(people, root):
    message = {"op": "parent_create", "type_key": "message", "payload": {"sync_flags": 1}}
    people.call("app", "insert", root, "messages", json.dumps(message), "--owner", 1)


def export(people, root, key):
    people.packages += 1
    file = f"{people.packages}.sync"
    people.call("app", "sync", "export", root, "talk", file, "--key", f"{key}.key")
    return file


def send(people, source, target, key):
    """Hand all envelopes of one store to another, in a file."""
    file = export(people, source, key)
    done = people.call("app", "sync", "import", target, file, "--peer", 1)
    assert done["refused"] == []
    return done


def count(root):
    with fourfold.open(root) as store:
        app = store.graphs.app("messages").app_id
        assert store.graphs.verify() == []
        return len(store.graphs.current_parents(app))


def incarnations(root):
    with fourfold.open(root) as store:
        logs = json.loads(store.graphs.sync_tips("talk"))["logs"]
        return [log["incarnation"] for log in logs]


def restore(people):
    people.call("restore", "a-backup", "a-again")


def bootstrap(people):
    people.call("bootstrap", "a-again", "--objects", "objects")


WAYS = {"restore": restore, "bootstrap": bootstrap}


@pytest.mark.parametrize("way", WAYS)
def test_lost_laptop_is_restored_and_continues_in_a_new_log(people, way):
    write(people, "a")
    send(people, "a", "b", "a")
    people.call("backup", "a", "a-backup")
    people.call("publish", "a", "--objects", "objects")
    write(people, "a")
    send(people, "a", "b", "a")
    shutil.rmtree("a")
    WAYS[way](people)
    assert count("a-again") == 1
    write(people, "a-again")
    assert send(people, "a-again", "b", "a")["accepted"] == 1
    assert len(set(incarnations("b"))) == 2
    assert send(people, "b", "a-again", "b")["added"] == 1
    assert count("a-again") == count("b") == 3
    assert people.call("app", "sync", "forks", "b")["forks"] == []


def test_copied_folder_is_a_new_incarnation(people):
    write(people, "a")
    send(people, "a", "b", "a")
    shutil.copytree("a", "copy", copy_function=shutil.copy2)
    for root in ("a", "copy"):
        write(people, root)
        send(people, root, "b", "a")
    assert len(set(incarnations("b"))) == 2
    assert people.call("app", "sync", "forks", "b")["forks"] == []
    for root in ("a", "copy"):
        send(people, "b", root, "b")
    assert count("a") == count("copy") == count("b") == 3


def test_refused_envelopes_are_listed(people):
    write(people, "a")
    send(people, "a", "b", "a")
    people.call("app", "limits", "b", "messages", "--rows", "0")
    write(people, "a")
    people.call("app", "sync", "import", "b", export(people, "a", "a"), "--peer", 1)
    (refused,) = people.call("app", "sync", "refusals", "b")["refusals"]
    assert (refused["kind"], refused["author"]) == ("limit_exceeded", people.keys["a"])
    peer_id = refused["peer_id"]
    assert people.call("app", "sync", "refusals", "b", "--peer", str(peer_id))["refusals"]
    people.call("app", "limits", "b", "messages", "--rows", "none")
    send(people, "a", "b", "a")
    assert people.call("app", "sync", "refusals", "b")["refusals"] == []


def test_fork_of_a_log_is_listed(people, tmp_path):
    """An old file put back in place, byte by byte, is noticed by the peers."""
    write(people, "a")
    send(people, "a", "b", "a")
    database = tmp_path / "a" / "graphs" / "backend.db"
    old = database.read_bytes()
    write(people, "a")
    send(people, "a", "b", "a")
    with database.open("r+b") as file:
        file.truncate()
        file.write(old)
    write(people, "a")
    send(people, "a", "b", "a")
    (fork,) = people.call("app", "sync", "forks", "b")["forks"]
    assert (fork["domain"], fork["author"], fork["seq"]) == ("talk", people.keys["a"], 2)
    assert count("b") == 3


def test_liar_is_refused_with_a_kind(people, tmp_path):
    write(people, "a")
    file = export(people, "a", "a")
    (raw,) = envelopes.unpack((tmp_path / file).read_bytes())
    envelope = msgspec.msgpack.decode(raw, type=SignedEnvelope)
    bodies = tuple(body.replace(b"message", b"menaces") for body in envelope.bodies)
    lies = {
        "content_mismatch": msgspec.structs.replace(envelope, bodies=bodies),
        "bad_signature": msgspec.structs.replace(envelope, signature=bytes(64)),
    }
    for kind, lie in lies.items():
        (tmp_path / kind).write_bytes(envelopes.pack([lie]))
        done = people.call("app", "sync", "import", "b", kind, "--peer", 1)
        assert [refusal["kind"] for refusal in done["refused"]] == [kind]
    assert count("b") == 0
    assert send(people, "a", "b", "a")["added"] == 1
