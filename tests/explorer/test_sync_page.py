"""The page of sync: peers with rights, domains, logs, forks, the past, and who may see it."""

from __future__ import annotations

import json

import pytest
from sync_store import fill_sync

import fourfold
from fourfold.models.graphs.sync import status
from fourfold.server.auth import Access
from server.served_streams import Served

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def synced(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer") / "synced"
    with fourfold.open(root) as store:
        key = fill_sync(store.graphs)
    with Access(root) as access:
        grants = {
            "all": {},
            "graphs": {"models": ("graphs",)},
            "some": {"models": ("graphs",), "prefix": "talk"},
            "streams": {"models": ("streams",)},
        }
        secrets = {name: access.add(("read",), **grant)[1] for name, grant in grants.items()}
    server = Served(root)
    server.public_key, server.secrets = key, secrets
    yield server
    server.kill()


def ask(server, path, key="all", **headers):
    headers = {**HTML, **headers, "Authorization": f"Bearer {server.secrets[key]}"}
    return server.ask("GET", path, headers=headers)


def test_peers_are_shown_with_rights_and_what_was_exchanged(synced):
    page = json.loads(ask(synced, "/sync.json").text)
    peer, other = page["peers"]
    assert [peer["label"], peer["public_key"], peer["endpoint"]] == [
        *("bob", synced.public_key, "node:bob"),
    ]
    right = {"domain": "talk", "may_read": True, "may_write": True}
    assert peer["rights"] == [{**right, "accepted": 3, "confirmed": 4, "entries": 4}]
    assert other["rights"] == []
    text = ask(synced, "/sync").text.decode()
    assert "read, write" in text
    assert 'href="/app?app=talk"' in text


def test_domains_have_logs_with_tips_and_forks_are_listed(synced):
    page = json.loads(ask(synced, "/sync.json").text)
    closed, talk = page["domains"]
    assert [closed["domain"], closed["entries"], closed["logs"]] == ["closed", 0, []]
    assert [talk["mask"], talk["apps"], talk["entries"], talk["log_count"]] == [1, ["talk"], 4, 2]
    theirs, own = talk["logs"]
    assert [own["label"], own["is_own"], own["is_forked"]] == ["alice", True, False]
    assert [theirs["label"], theirs["is_own"], theirs["is_forked"]] == ["bob", False, True]
    assert [tip[0] for tip in theirs["tips"]] == [2, 2]
    (fork,) = page["forks"]
    assert [page["fork_count"], page["parked_count"], page["complete"]] == [1, 0, True]
    assert {fork["first"], fork["second"]} == {tip[1] for tip in theirs["tips"]}
    assert "forked" in ask(synced, "/sync").text.decode()


def test_sync_of_the_past_leaves_out_what_came_later(synced):
    page = json.loads(ask(synced, "/sync.json?at=2020-01-01T00:00:00Z").text)
    assert [page["peers"], page["forks"]] == [[], []]
    text = ask(synced, "/sync?at=2020-01-01T00:00:00Z").text.decode()
    assert "No peer was added until then" in text


def test_sync_state_requires_a_key_for_all_graphs(synced):
    assert ask(synced, "/sync", "graphs").status == 200
    for key in ("some", "streams"):
        for path in ("/sync", "/sync.json", "/v1/sync/status"):
            assert ask(synced, path, key).status == 403, (key, path)
    refused = ask(synced, "/v1/sync/status?at=2020-01-01T00:00:00Z")
    assert refused.status == 400
    assert b"only as it is now" in refused.text


def test_lists_of_graphs_lead_to_sync(synced):
    for path in ("/", "/graphs", "/app?app=talk"):
        assert 'href="/sync"' in ask(synced, path).text.decode(), path


def test_a_client_reads_the_state_of_sync(synced):
    address = f"http://127.0.0.1:{synced.port}"
    with fourfold.connect(address, synced.secrets["graphs"]) as store:
        remote = store.graphs.sync.status()
        assert [peer.label for peer in remote.peers] == ["bob", "alice"]
        assert [len(domain.logs) for domain in remote.domains] == [0, 2]
        assert (
            remote.domains[1].fingerprint
            == json.loads(ask(synced, "/v1/sync/status").text)["domains"][1]["fingerprint"]
        )


def test_an_empty_page_of_sync_shows_the_commands(empty):
    text = empty.ask("GET", "/sync", headers=HTML).text.decode()
    assert "No sync yet" in text
    assert "fourfold app sync peer" in text


def test_lists_of_sync_are_bounded(tmp_path, monkeypatch):
    with fourfold.open(tmp_path / "store") as store:
        fill_sync(store.graphs)
        assert status.read_status(store.graphs).complete
        monkeypatch.setattr(status, "PEERS_MAX", 1)
        monkeypatch.setattr(status, "LOGS_MAX", 1)
        monkeypatch.setattr(status, "TIPS_MAX", 1)
        read = status.read_status(store.graphs)
        assert [len(read.peers), read.complete] == [1, False]
        (log,) = read.domains[1].logs
        assert [log.label, len(log.tips), read.domains[1].log_count] == ["bob", 1, 2]
        monkeypatch.undo()
        monkeypatch.setattr(status, "DOMAINS_MAX", 1)
        read = status.read_status(store.graphs)
        assert [[row.domain for row in read.domains], read.complete] == [["closed"], False]
