"""Pages of a server with keys: login, and what each key allows."""

from __future__ import annotations

import json

import pytest
from shop_store import DID, fill_shop
from test_pages_over_http import BROWSER, DOCUMENT, SPACE, get, post, text_of

from fourfold.server.auth import Access
from server.served_streams import Served


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer") / "locked"
    fill_shop(root)
    with Access(root) as access:
        secrets = {
            "all": access.add(("read", "write", "admin"))[1],
            "one": access.add(("read",))[1],
            "sensors": access.add(("read",), "sensors/")[1],
            "documents": access.add(("read",), models=("documents",))[1],
        }
    server = Served(root)
    server.secrets = secrets
    yield server
    server.kill()


def log_in(server, key, following="/"):
    return post(server, "/login", {"key": key, "next": following})


def test_a_store_with_keys_asks_for_one(locked):
    page = get(locked, "/stream?name=orders")
    assert page.status == 401
    assert "Log in with a key" in text_of(page)
    assert 'value="/stream?name=orders"' in text_of(page)
    assert "orders" not in text_of(get(locked, "/"))
    assert get(locked, "/stream.json?name=orders", {}).status == 401
    refused = log_in(locked, "ff_wrong")
    assert refused.status == 401
    assert "set-cookie" not in refused.headers
    assert "Unknown key" in text_of(refused)


def test_login_sets_cookie_that_scripts_and_other_sites_cannot_use(locked):
    done = log_in(locked, locked.secrets["all"], "/stream?name=orders")
    assert [done.status, done.headers["location"]] == [303, "/stream?name=orders"]
    cookie = done.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    headers = {**BROWSER, "Cookie": cookie.partition(";")[0]}
    assert get(locked, "/stream?name=orders", headers).status == 200
    assert get(locked, "/v1/stream/orders", headers).status == 200
    assert "Log out" in text_of(get(locked, "/", headers))
    gone = locked.ask("POST", "/logout", headers=headers)
    assert "Max-Age=0" in gone.headers["set-cookie"]


@pytest.mark.parametrize("address", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_the_login_never_leads_to_another_site(locked, address):
    assert log_in(locked, locked.secrets["all"], address).headers["location"] == "/"


def test_a_page_shows_only_what_the_key_allows(locked):
    cookie = {**BROWSER, "Cookie": f"fourfold_key={locked.secrets['sensors']}"}
    assert get(locked, "/streams?prefix=sensors/", cookie).status == 200
    assert get(locked, "/stream?name=sensors/001", cookie).status == 200
    # A list starts with the prefix of the key.
    listed = json.loads(get(locked, "/streams.json", {"Cookie": cookie["Cookie"]}).text)
    assert listed["prefix"] == "sensors/"
    assert {row["name"][:8] for row in listed["streams"]} == {"sensors/"}
    for path in ("/streams?prefix=o", "/stream?name=orders", f"/space?{SPACE}", "/keys"):
        refused = get(locked, path, cookie)
        assert refused.status == 403
        assert "Ada" not in text_of(refused)
    home = text_of(get(locked, "/", cookie))
    assert "needs a key that may read the store" in home
    assert "/streams?prefix=sensors%2F" in home
    reader = {**BROWSER, "Cookie": f"fourfold_key={locked.secrets['documents']}"}
    assert get(locked, f"/document?{DOCUMENT}", reader).status == 200
    same = {**reader, "Origin": f"http://127.0.0.1:{locked.port}"}
    assert post(locked, "/branch", {"did": DID, "name": "x", "token": "t"}, same).status == 403


def test_one_key_opens_the_pages_of_all_models(locked):
    cookie = log_in(locked, locked.secrets["one"]).headers["set-cookie"].partition(";")[0]
    headers = {**BROWSER, "Cookie": cookie}
    paths = ("/", "/documents", f"/space?{SPACE}", f"/document?{DOCUMENT}", "/streams")
    for path in (*paths, "/stream?name=orders", "/graphs", "/sessions", "/status"):
        assert get(locked, path, headers).status == 200, path
    assert "Newest entries" in text_of(get(locked, "/", headers))
    assert get(locked, "/keys", headers).status == 403
    admin = {**BROWSER, "Cookie": f"fourfold_key={locked.secrets['all']}"}
    keys = text_of(get(locked, "/keys", admin))
    assert 'data-label="Models">all</td>' in keys
    assert "sensors/" in keys
    assert locked.secrets["one"] not in keys


def test_the_body_of_a_login_is_small(locked):
    response = locked.ask("POST", "/login", b"key=" + b"a" * 400_000, BROWSER)
    assert response.status in {400, 413}


def test_keys_are_managed_by_administrators_only(locked):
    reader = {**BROWSER, "Cookie": f"fourfold_key={locked.secrets['one']}"}
    for path in ("/keys", "/newkey", "/deletekey?id=x"):
        assert get(locked, path, reader).status == 403, path
    fields = {"scopes": "read", "token": "t"}
    assert post(locked, "/newkey", fields, {"Cookie": reader["Cookie"]}).status == 403
    admin = {"Cookie": f"fourfold_key={locked.secrets['all']}"}
    foreign = {**admin, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert post(locked, "/newkey", fields, foreign).status == 403
    assert post(locked, "/deletekey", {"id": "x"}, foreign).status == 403
    assert post(locked, "/deletekey", {"id": "x"}, admin).status == 404
    # The key of the visitor has no scope `query`, so it cannot grant it.
    assert post(locked, "/newkey", {"scopes": "query", "token": "t"}, admin).status == 403
    past = text_of(get(locked, "/newkey?read=1&at=2031-01-01", {**BROWSER, **admin}))
    assert 'method="post" action="/newkey"' not in past
