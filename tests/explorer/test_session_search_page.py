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


def test_page_lists_leases_and_policies(own_shop):
    body = json.dumps({"holder": "worker-7", "ttl_s": 60})
    kind = {"Content-Type": "application/json"}
    assert own_shop.ask("POST", f"/v1/sessions/lease/{AGENT}", body, kind).status == 201
    path = "/v1/sessions/retention?prefix=agent/"
    assert own_shop.ask("PUT", path, '{"max_age_s": 86400}', kind).status == 200
    page = json.loads(read(own_shop, "/leases.json"))
    assert [(row["session"], row["holder"]) for row in page["leases"]] == [(AGENT, "worker-7")]
    assert [(row["prefix"], row["max_age_s"]) for row in page["policies"]] == [("agent/", 86400.0)]
    text = read(own_shop, "/leases")
    assert "in force" in text
    assert "1.0 days" in text
    assert "leases and retention" in read(own_shop, "/sessions")
