"""Keys in `server.sqlite`, grants by model, and the import of an older key file."""

from __future__ import annotations

import itertools
import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

import fourfold
from fourfold.cli import main
from fourfold.errors import Forbidden, FormatError, InvalidInput, Unauthorized, WriterLocked
from fourfold.kernel import Database
from fourfold.server.auth import Access
from fourfold.server.key_store import MODELS, NAMED_MODELS, SCOPES, Grant, Key, KeyStore
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol

GOLDEN = Path(__file__).parents[1] / "golden" / "keys"
OLD = {
    "keys": [
        {"id": "a1", "sha256": "00" * 32, "scopes": ["read"], "prefix": "own/", "label": "one"},
        {"id": "b2", "sha256": "11" * 32, "scopes": ["admin", "read"]},
    ]
}
IMPORTED = (
    Key("a1", "00" * 32, (Grant("streams", ("read",), "own/"),), "one"),
    Key("b2", "11" * 32, (Grant("streams", ("admin", "read")),)),
)


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def old_file(root):
    path = root / "access.json"
    path.write_text(json.dumps(OLD))
    return path


def stored(root):
    with Access(root) as access:
        return access.stored_keys()


def test_key_file_of_an_older_version_is_imported(root, old_file):
    (root / ".access.json.lock").touch()
    assert stored(root) == IMPORTED
    assert not list(root.glob("*access.json*"))
    assert stored(root) == IMPORTED
    with Access(root) as access:
        access.remove("a1")
    assert stored(root) == IMPORTED[1:]


def test_empty_key_file_keeps_the_server_closed(root, old_file):
    old_file.write_text('{"keys": []}')
    with Access(root) as access:
        assert access.keys()[0].id == ""
    assert not old_file.exists()
    with Access(root) as access:
        assert access.keys()[0].id == ""


IMPORT_AND_DIE = """
import os, sys
from pathlib import Path
from fourfold.kernel import Database
from fourfold.server.auth import Access
owner = {"commit": Database, "deletion": Path}[sys.argv[2]]
name = {"commit": "transact", "deletion": "unlink"}[sys.argv[2]]
setattr(owner, name, lambda *args, **options: os._exit(9))
Access(Path(sys.argv[1])).keys()
"""


@pytest.mark.parametrize("step", ["commit", "deletion"])
def test_import_that_was_killed_is_repeated(root, old_file, step):
    command = [sys.executable, "-c", IMPORT_AND_DIE, str(root), step]
    assert subprocess.run(command, check=False).returncode == 9
    # The old file is deleted only after the commit.
    assert json.loads(old_file.read_text()) == OLD
    # A key that is removed now stays removed, although the old file still has it.
    with Access(root) as access:
        assert access.remove("a1") == 1
    assert stored(root) == IMPORTED[1:]
    assert not old_file.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"keys": [{"id": 1}]}'])
def test_damaged_key_file_closes_the_server_and_is_not_deleted(root, old_file, text):
    old_file.write_text(text)
    with Access(root) as access:
        with pytest.raises(FormatError):
            access.keys()
        with pytest.raises(FormatError):
            access.add(("read",))
        with fourfold.open(root) as store:
            assert not StreamProtocol(store.streams, access=access).is_open
    assert old_file.read_text() == text


def test_interrupted_creation_of_the_file_is_completed(root):
    (root / "server.sqlite").touch(mode=0o600)
    assert stored(root) == ()
    with Access(root) as access:
        assert access.keys() == ()


def test_changes_in_quick_succession_are_all_seen(root):
    with Access(root) as server, Access(root) as command:
        for _ in range(20):
            key, _ = command.add(("read",))
            assert [item.id for item in server.stored_keys()] == [key.id]
            command.remove(key.id)
            assert server.stored_keys() == ()


def test_unchanged_keys_are_not_read_again(root, monkeypatch):
    reads = []
    monkeypatch.setattr("fourfold.server.key_store.FILE_CLOCK_NS", -(10**18))
    with Access(root) as access, Access(root) as command:
        command.add(("read",))
        keys = access.stored_keys()
        read = Database.read
        monkeypatch.setattr(Database, "read", lambda *args: reads.append(1) or read(*args))
        assert access.stored_keys() == keys
        assert reads == []
        command.remove(keys[0].id)
        assert access.stored_keys() == ()
        assert reads == [1]


def test_change_waits_for_another_process_but_not_forever(root, monkeypatch):
    monkeypatch.setattr("fourfold.server.database.SERVER_DATABASE_WAIT_S", 0.05)
    with Access(root) as access:
        access.add(("read",))
        with KeyStore(root)._writer():
            with pytest.raises(WriterLocked):
                access.add(("read",))
            # Reading does not wait.
            assert len(access.stored_keys()) == 1


def request(secret):
    return Request("GET", "/v1/stream/a", "", {"authorization": f"Bearer {secret}"})


def test_keys_of_an_older_store_keep_their_meaning(root):
    """The file was written when a key was for one model."""
    old = lzma.decompress((GOLDEN / "server.sqlite.xz").read_bytes())
    (root / "server.sqlite").write_bytes(old)
    rows = json.loads((GOLDEN / "keys.json").read_text())
    with Access(root) as access:
        keys = {key.id: key for key in access.stored_keys()}
        assert list(keys) == [row["id"] for row in rows]
        for row in rows:
            key = keys[row["id"]]
            assert key.label == row["label"]
            if row["secret"] is not None:
                assert access.identify(request(row["secret"])) == key
            (grant,) = row["grants"]
            scopes = {
                *grant["scopes"],
                *(["metrics", "audit"] if "admin" in grant["scopes"] else []),
            }
            names = ("", grant["prefix"], f"{grant['prefix']}x", "elsewhere", None)
            for model, scope, name in itertools.product(MODELS, SCOPES, names):
                expected = model == grant["model"] and scope in scopes
                expected &= name is None or name.startswith(grant["prefix"])
                assert key.allows(scope, name, model) == expected, (row, model, scope, name)
        # A key for several models is stored next to them.
        added, secret = access.add(("read",), models=("graphs", "documents"))
        assert access.identify(request(secret)) == added
        assert len(access.stored_keys()) == len(rows) + 1


def test_key_is_for_all_models_by_default(root):
    with Access(root) as access:
        everything, narrow = access.add(("read",))[0], access.add(("read",), "a")[0]
        assert [grant.model for grant in everything.grants] == list(MODELS)
        # The store has no names, so that no prefix is for it.
        assert [grant.model for grant in narrow.grants] == list(NAMED_MODELS)
        assert {grant.prefix for grant in narrow.grants} == {"a"}
        for models in (("store",), ("streams", "store")):
            with pytest.raises(InvalidInput, match="the store has no names"):
                access.add(("read",), "a", models=models)
        assert len(access.stored_keys()) == 2


def test_key_for_some_models_is_refused_by_the_others(root):
    chosen = ("documents", "sessions")
    with Access(root) as access:
        _, secret = access.add(("read", "write"), models=chosen)
        for model, scope in itertools.product(MODELS, SCOPES):
            if model in chosen and scope in {"read", "write"}:
                assert access.require(request(secret), scope, "any", model) is not None
            else:
                with pytest.raises(Forbidden):
                    access.require(request(secret), scope, "any", model)


def test_key_is_for_its_model_only(root):
    with Access(root) as access:
        secrets = {model: access.add(("read",), "a", models=(model,))[1] for model in NAMED_MODELS}
        for model, secret in secrets.items():
            for other in MODELS:
                if other == model:
                    assert access.require(request(secret), "read", "ab", other) is not None
                else:
                    with pytest.raises(Forbidden):
                        access.require(request(secret), "read", "ab", other)
            with pytest.raises(Forbidden):
                access.require(request(secret), "read", "b", model)
        with pytest.raises(InvalidInput):
            access.add(("read",), models=("tables",))


def test_key_without_grants_is_refused_everywhere(root):
    with Access(root) as access:
        key, secret = access.add(("read", "write", "admin", "metrics"))
        with access._store._writer() as database:
            database.transact(lambda txn: txn.execute("DELETE FROM api_key_grant"))
        assert access.identify(request(secret)).id == key.id
        for scope in ("read", "write", "admin", "metrics"):
            with pytest.raises(Forbidden):
                access.require(request(secret), scope, "", "streams")


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["documents", "sessions"])
async def test_key_of_another_model_cannot_use_streams_or_subscriptions(root, model):
    with fourfold.open(root) as store, Access(root) as access:
        store.streams.create("a", "text/plain")
        protocol = StreamProtocol(store.streams, access=access)
        _, secret = access.add(("read", "write", "admin", "metrics"), models=(model,))
        headers = {"authorization": f"Bearer {secret}", "host": "localhost"}
        subscription = b'{"type": "pull-wake", "pattern": "**", "wake_stream": "w"}'
        for method, path, body in (
            ("GET", "/v1/stream/a", b""),
            ("DELETE", "/v1/stream/a", b""),
            ("GET", "/v1/streams", b""),
            ("GET", "/metrics", b""),
            ("GET", "/v1/stream/__ds/subscriptions/s", b""),
            ("PUT", "/v1/stream/__ds/subscriptions/s", subscription),
            ("GET", "/unknown", b""),
        ):
            response = await protocol.handle(Request(method, path, "", headers, body))
            assert response.status == 403, (method, path)


def test_unknown_path_needs_a_key_for_everything(root):
    with fourfold.open(root) as store, Access(root) as access:
        protocol = StreamProtocol(store.streams, access=access)
        narrow = access.add(("read", "write", "admin"), "a/")[1]
        for path in ("/", "/v1", "/v1/stream/__ds/unknown"):
            with pytest.raises(Unauthorized):
                protocol.admit(Request("GET", path))
            headers = {"authorization": f"Bearer {narrow}"}
            with pytest.raises(Forbidden):
                protocol.admit(Request("GET", path, "", headers))


def test_key_commands_name_the_models(root, capsys):
    def run(*arguments):
        assert main.run(["key", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    models = ("--model", "graphs", "--model", "sessions")
    added = run("add", str(root), *models, "--prefix", "g")
    everything = run("add", str(root), "--scope", "read")
    allowed = {"models": ["graphs", "sessions"], "scopes": ["read", "write"], "prefix": "g"}
    assert allowed.items() <= added.items()
    assert everything["models"] == list(MODELS)
    first, second = run("list", str(root))["keys"]
    assert {"id": added["id"], "label": "", **allowed}.items() <= first.items()
    assert (second["id"], second["models"]) == (everything["id"], sorted(MODELS))
    assert main.run(["key", "list", str(root)]) == 0
    assert "graphs, sessions" in capsys.readouterr().out
    assert main.run(["key", "add", str(root), "--model", "store", "--prefix", "g"]) == 2
    for row in (first, second):
        run("remove", str(root), row["id"])
    assert stored(root) == ()


def test_backup_has_the_keys(root, tmp_path):
    with Access(root) as access:
        access.add(("read",))
        keys = access.stored_keys()
        with fourfold.open(root) as store:
            store.backup(tmp_path / "copy")
    assert main.run(["verify", str(tmp_path / "copy")]) == 0
    assert main.run(["restore", str(tmp_path / "copy"), str(tmp_path / "again")]) == 0
    assert stored(tmp_path / "again") == keys
    assert main.run(["verify", str(tmp_path / "again")]) == 0
