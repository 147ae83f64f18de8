"""The page of the audit log: order, filters, pages, the past, and who may see it."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from shop_store import PROBE

import fourfold
from fourfold.server.auth import Access
from server.served_streams import Served

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A server with keys: one of them wrote, one was refused, and one may read the audit log."""
    root = tmp_path_factory.mktemp("explorer") / "audited"
    fourfold.open(root).close()
    with Access(root) as access:
        keys = {
            "admin": access.add(("read", "write", "admin")),
            "reader": access.add(("read",)),
            "auditor": access.add(("audit",), models=("store",)),
        }
    server = Served(root)
    server.ids = {name: key.id for name, (key, _) in keys.items()}
    server.secrets = {name: secret for name, (_, secret) in keys.items()}
    for number in range(60):
        assert ask(server, "admin", "PUT", f"/v1/stream/s{number}").status == 201
    assert ask(server, "reader", "PUT", "/v1/stream/refused").status == 403
    assert ask(server, "admin", "DELETE", f"/v1/stream/{quote(PROBE)}").status == 404
    yield server
    server.kill()


def ask(server, key, method, path, accept="text/html"):
    headers = {**JSON, "Accept": accept, "Authorization": f"Bearer {server.secrets[key]}"}
    return server.ask(method, path, headers=headers)


def entries(server, query=""):
    page = json.loads(ask(server, "auditor", "GET", f"/audit.json{query}").text)
    return page["entries"], page["next_cursor"]


def test_entries_are_listed_newest_first_in_pages(audited):
    first, cursor = entries(audited)
    assert len(first) == 50
    assert [first[0]["error"], first[1]["error"]] == ["not_found", "forbidden"]
    second, end = entries(audited, f"?cursor={cursor}")
    assert end is None
    paths = [row["path"] for row in [*first, *second] if row["operation"] == "create"]
    wanted = [f"/v1/stream/s{number}" for number in reversed(range(60))]
    assert [path for path in paths if path in wanted] == wanted
    text = ask(audited, "auditor", "GET", "/audit").text.decode()
    assert "Next page" in text
    assert "First page" in ask(audited, "auditor", "GET", f"/audit?cursor={cursor}").text.decode()


def test_entries_are_filtered_by_key_operation_and_outcome(audited):
    reader = audited.ids["reader"]
    assert [row["path"] for row in entries(audited, f"?key={reader}")[0]] == ["/v1/stream/refused"]
    refused, _ = entries(audited, "?outcome=refused")
    assert [row["state"] for row in refused] == ["warn", "warn"]
    assert {row["operation"] for row in entries(audited, "?operation=delete")[0]} == {"delete"}
    both, _ = entries(audited, f"?outcome=refused&key={audited.ids['admin']}")
    assert [row["error"] for row in both] == ["not_found"]
    text = ask(audited, "auditor", "GET", "/audit?key=unknown").text.decode()
    assert "No entry on this page matches" in text
    assert ask(audited, "auditor", "GET", "/audit?outcome=other").status == 400
    assert ask(audited, "auditor", "GET", "/audit?cursor=x").status == 400


def test_outcomes_link_to_their_kind_and_keys_to_their_entries(audited):
    text = ask(audited, "auditor", "GET", "/audit?outcome=refused").text.decode()
    assert 'href="/problem?kind=forbidden"' in text
    assert f'href="/audit?key={audited.ids["reader"]}&amp;outcome=refused"' in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_the_audit_log_of_the_past_ends_then(audited):
    assert entries(audited, "?at=2020-01-01T00:00:00Z")[0] == []
    text = ask(audited, "auditor", "GET", "/audit?at=2020-01-01T00:00:00Z").text.decode()
    assert "was written until then" in text
    assert len(entries(audited, "?at=2100-01-01T00:00:00Z")[0]) == 50


def test_the_audit_log_is_for_keys_that_may_read_it(audited):
    assert ask(audited, "admin", "GET", "/audit").status == 200
    for path in ("/audit", "/audit.json"):
        assert ask(audited, "reader", "GET", path).status == 403
        assert audited.ask("GET", path, headers={"Accept": "application/json"}).status == 401


def test_an_empty_audit_log_shows_what_fills_it(empty):
    text = empty.ask("GET", "/audit", headers={"Accept": "text/html"}).text.decode()
    assert "No audit entries yet" in text
    assert "curl -X PUT" in text
