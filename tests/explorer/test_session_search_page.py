"""The search on the page of sessions."""

from __future__ import annotations

import json

from shop_store import AGENT


def read(server, path):
    answer = server.ask("GET", path, headers={"Accept": "text/html"})
    assert answer.status == 200, answer.text
    return answer.text.decode()


def test_page_shows_what_sessions_say_that_matches(shop):
    hits = json.loads(read(shop, "/sessions.json?q=refund*"))["hits"]
    assert AGENT in {hit["session"] for hit in hits}
    page = read(shop, "/sessions?q=refund*")
    assert "<mark>Refund</mark>" in page
    assert f"/session?sid={AGENT.replace('/', '%2F')}&amp;at=" in page
    assert "Nothing in these sessions matches." in read(shop, "/sessions?q=absent")
    assert "Nothing in these sessions matches." in read(shop, "/sessions?q=refund*&prefix=none")
    past = "/sessions?q=refund*&at=2020-01-01T00:00:00Z"
    assert "<mark>" not in read(shop, past)


def test_page_shows_why_a_search_is_refused(shop):
    assert "has no word that must occur" in read(shop, "/sessions?q=-refund")
