"""Pages of graphs beyond those of apps and objects."""

from __future__ import annotations

import json


def page_text(server, path):
    return server.ask("GET", path, headers={"Accept": "text/html"}).text.decode()


def test_a_path_is_drawn_between_two_objects_at_any_seq(shop):
    page = json.loads(shop.ask("GET", "/path.json?app=crm&start=2&end=4").text)
    assert page["route"]["objects"] == [2, 1, 4]
    assert [row["name"] for row in page["graph"]["edges"]] == ["← placed", "← about Ada"]
    body = page_text(shop, "/path?app=crm&start=2&end=4")
    assert body.count('<g class="node') == 3
    assert 'href="/object?app=crm&amp;id=4"' in body
    assert "no path" in page_text(shop, "/path?app=crm&start=2&end=4&direction=out")
    assert shop.ask("GET", "/path?app=crm&start=2&end=4&at=1").status == 404
    assert shop.ask("GET", "/path?app=crm&start=2&end=x").status == 400
