"""Pages of graphs beyond those of apps and objects."""

from __future__ import annotations

import json
from urllib.parse import quote

import fourfold
from server.served_streams import Served


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


def test_matches_of_a_pattern_are_drawn_and_listed(shop):
    pattern = quote('{"steps": [{"from": "a", "to": "b"}, {"from": "a", "to": "c", "hops": 2}]}')
    page = json.loads(shop.ask("GET", f"/match.json?app=crm&pattern={pattern}").text)
    assert page["names"] == ["a", "b", "c"]
    assert {tuple(row["objects"]) for row in page["page"]["items"]} == {("a", "b", "c")}
    body = page_text(shop, f"/match?app=crm&pattern={pattern}")
    assert body.count('<g class="node') == len(page["graph"]["nodes"]) > 2
    assert 'href="/object?app=crm&amp;id=4"' in body
    assert "No matches" in page_text(shop, f"/match?app=crm&pattern={pattern}&at=1")
    assert "Match</button>" in page_text(shop, "/match?app=crm")
    assert shop.ask("GET", "/match?app=crm&pattern=x").status == 400
    assert shop.ask("GET", f"/match?app=crm&pattern={quote('{}')}").status == 400


def test_changes_of_object_are_paged_and_its_bounds_are_stated(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        graph = store.graphs.create("crm")
        person = graph.register_type("parent", "person")
        knows = graph.register_type("edge", "knows")
        people = graph.insert("parent", [{"type_id": person, "owner_identity": 1}] * 212)
        edge = {"type_id": knows, "owner_identity": 1, "src_parent_id": people[0]}
        for other in people[1:71]:
            graph.insert("edge", [{**edge, "dst_parent_id": other}])
        many = {**edge, "src_parent_id": people[1]}
        graph.insert("edge", [{**many, "dst_parent_id": other} for other in people[2:]])
    server = Served(tmp_path / "store")
    try:
        path = f"/object.json?app=crm&id={people[0]}&from=1"
        pages = [
            json.loads(server.ask("GET", f"{path}&changes={after}").text) for after in (0, 30, 60)
        ]
        assert [page["more_changes"] for page in pages] == [30, 60, None]
        assert {page["change_count"] for page in pages} == {70}
        seqs = [row["seq"] for page in pages for row in page["changes"]]
        assert seqs == sorted(seqs, reverse=True)
        assert len(set(seqs)) == 70
        assert len(pages[0]["bars"]) == 71
        assert pages[0]["is_complete"]
        assert "Earlier changes" in page_text(server, f"/object?app=crm&id={people[0]}&from=1")
        second = page_text(server, f"/object?app=crm&id={people[0]}&from=1&changes=30")
        assert "Newest changes" in second
        assert "show a part of the history" not in second
        assert "show a part of the history" in page_text(server, f"/object?app=crm&id={people[1]}")
    finally:
        server.kill()


def test_edges_that_left_an_object_are_listed_as_removed(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        graph = store.graphs.create("crm")
        person = graph.register_type("parent", "person")
        knows = graph.register_type("edge", "knows")
        hides = graph.register_type("rating", "suppress")
        ann, ben, cat, dan = graph.insert("parent", [{"type_id": person, "owner_identity": 1}] * 4)
        edge = {"type_id": knows, "owner_identity": 1}
        ends = ((ann, ben), (cat, ann), (ann, dan))
        edges = [{**edge, "src_parent_id": src, "dst_parent_id": dst} for src, dst in ends]
        stays, moves, _ = graph.insert("edge", edges)
        before = store.graphs.position()
        graph.update("edge", moves, {"dst_parent_id": ben})
        rating = {"type_id": hides, "owner_identity": 1, "target_parent_id": dan}
        graph.insert("rating", [{**rating, "value_number": 1}])
        after = store.graphs.position()
        assert graph.read("edge", stays) is not None
        value = {"type_id": graph.register_type("attr", "name"), "owner_identity": 1}
        graph.insert("attr", [{**value, "parent_id": ann, "value_text": "Ann"}])
    server = Served(tmp_path / "store")
    try:
        path = f"/object.json?app=crm&id={ann}&from={before}"
        page = json.loads(server.ask("GET", path).text)
        removed = [row for row in page["changes"] if row["sign"] == "-"]
        texts = {f"edge knows: {cat} → {ann}", f"edge knows: {ann} → {dan}"}
        assert {row["text"] for row in removed} == texts
        assert len(removed) == 2
        # When an edge left is not stored with the object, only until when.
        assert {(row["seq"], row["at_ms"]) for row in removed} == {(None, None)}
        gone = [row["state"] for row in page["edges"]]
        assert sorted(gone) == ["", "gone", "gone"]
        text = page_text(server, path.replace(".json", ""))
        assert text.count('title="removed"') == 2
        assert f"until {page['shown']}" in text
        # Before and after, nothing left the object.
        for bounds in (f"from=1&at={before}", f"from={after}"):
            page = json.loads(server.ask("GET", f"/object.json?app=crm&id={ann}&{bounds}").text)
            assert {row["sign"] for row in page["changes"]} <= {"+", "~"}
            assert "gone" not in {row["state"] for row in page["edges"]}
    finally:
        server.kill()


def test_changed_attribute_shows_both_values(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        graph = store.graphs.create("crm")
        person, tier = graph.register_type("parent", "person"), graph.register_type("attr", "tier")
        [ann] = graph.insert("parent", [{"type_id": person, "owner_identity": 1}])
        value = {"type_id": tier, "owner_identity": 1, "parent_id": ann, "value_text": "silver"}
        [made] = graph.insert("attr", [value])
        graph.update("attr", made, {"value_text": "gold"})
    server = Served(tmp_path / "store")
    try:
        page = json.loads(server.ask("GET", f"/object.json?app=crm&id={ann}&from=1").text)
        assert [row["text"] for row in page["changes"]] == ["tier silver → gold", "tier = silver"]
    finally:
        server.kill()
