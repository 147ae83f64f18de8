"""Pages without a browser: links, data as JSON, policy, login, and what keys allow."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, deque
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from shop_store import AGENT, DID, ORDER

import fourfold
from fourfold.explorer.explorer import Explorer
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol
from server.served_streams import Served

LINKS_PER_PAGE = 12
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
SPACE = urlencode({"did": DID})
DOCUMENT = urlencode({"did": DID, "id": ORDER})
PAGES = (
    "/",
    "/search?prefix=o",
    "/documents",
    f"/space?{SPACE}",
    f"/space?{SPACE}&branch=discount&prefix=order",
    f"/space?{SPACE}&where=%7B%22status%22%3A%22paid%22%7D",
    f"/space?{SPACE}&where=no-filter",
    f"/space?{SPACE}&q=green",
    f"/document?{DOCUMENT}",
    f"/document?{DOCUMENT}&at=8&from=3&blame=1",
    f"/document?{DOCUMENT}&branch=discount",
    f"/restore?{DOCUMENT}&seq=6",
    f"/branches?{SPACE}",
    f"/blobs?{SPACE}",
    "/archive",
    f"/merge?{SPACE}&source=discount",
    "/streams",
    "/streams?prefix=sensors/",
    "/stream?name=orders",
    "/stream?name=orders&start=10",
    "/stream?name=orders&q=status:paid+total:%3E100",
    "/stream?name=orders&key=&field=&value=&start=",
    "/stream?name=orders&field=status&value=%22paid%22",
    "/stream?name=logs/till-1",
    "/sessions",
    "/sessions?prefix=support&status=running",
    "/session?sid=support/1042",
    "/session?sid=support/1042&at=4",
    "/compare?sid=support/1042",
    "/fork?sid=support/1042&event=4",
    "/graphs",
    "/app?app=crm",
    "/app?app=crm&type=2",
    "/object?app=crm&id=1",
    "/object?app=crm&id=1&at=3",
    "/sync",
    "/path?app=crm",
    "/path?app=crm&start=2&end=4&direction=both",
    "/sql",
    "/sql?query=select+stream,+records+from+streams_streams",
    "/sql?query=select+stream+from+streams_streams&at=2020-01-01T00:00:00Z",
    "/sql?query=select",
    "/sql?table=streams_records&rows=100&deadline=60",
    "/jobs",
    "/jobs?kind=snapshots&status=succeeded",
    "/job?id=1",
    "/run",
    "/run?kind=verify",
    "/run?kind=backup",
    "/run?kind=publish",
    "/run?kind=materialize&model=graphs",
    "/pipeline",
    "/pipeline?job=write-tables",
    "/status",
    "/keys",
    "/audit",
    "/audit?operation=start_job&outcome=refused",
    "/problems",
    "/problem?kind=not_found",
)


class Reader(HTMLParser):
    """Collect what a page refers to, and inline code that the policy would block."""

    def __init__(self, text):
        super().__init__()
        self.links, self.sources, self.inline, self.ids = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "a":
            self.links.append(attributes["href"])
        if tag == "link" or (tag == "script" and "src" in attributes):
            self.sources.append(attributes.get("href") or attributes["src"])
        self.inline += [name for name in attributes if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in attributes):
            self.inline.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])


def get(server, path, headers=BROWSER):
    return server.ask("GET", path, headers=headers)


def text_of(response):
    return response.text.decode()


def test_a_query_is_shown_and_exported_in_each_format(shop):
    text = "select stream, records from streams_streams order by 1 limit 3"
    # The first query in a format imports what it needs, which takes long on a busy machine.
    query = urlencode({"query": text, "deadline": 60})
    data = json.loads(shop.ask("GET", f"/sql.json?{query}").text)
    rows = data["result"]["rows"]
    assert data["chart"] == {
        "column": "records",
        "by": "stream",
        "labels": [name for name, _ in rows],
        "amounts": [number for _, number in rows],
    }
    assert "streams_streams" in {table["name"] for table in data["tables"]}
    for name, content_type in (
        ("csv", "text/csv; charset=utf-8"),
        ("json", "application/json"),
        ("arrow", "application/vnd.apache.arrow.stream"),
    ):
        answer = shop.ask("GET", f"/sql/export?{query}&format={name}")
        assert (answer.status, answer.headers["content-type"]) == (200, content_type)
        assert answer.headers["content-disposition"].startswith("attachment")
    assert json.loads(shop.ask("GET", "/sql.json?query=select").text)["problem"]["kind"] == (
        "invalid_input"
    )
    assert shop.ask("GET", "/sql/export?query=select").status == 400
    refused = shop.ask("GET", "/sql.json?rows=7")
    assert (refused.status, b"must be 100 or 500 or 1000" in refused.text) == (400, True)


@pytest.mark.parametrize("path", PAGES)
def test_page_has_its_policy_one_title_and_no_inline_code(shop, path):
    response = get(shop, path)
    assert response.status == 200, text_of(response)
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["cache-control"] == "no-store"
    page = Reader(text_of(response))
    assert page.inline == []
    assert text_of(response).count("<h1") == 1
    assert len(page.ids) == len(set(page.ids))


@pytest.mark.parametrize("path", PAGES)
def test_data_of_page_is_json_at_second_address(shop, path):
    parts = urlsplit(path)
    twin = "/index.json" if parts.path == "/" else f"{parts.path}.json"
    response = get(shop, f"{twin}?{parts.query}" if parts.query else twin)
    assert response.status == 200
    assert isinstance(json.loads(response.text), dict)
    assert "this page as <a href=" in text_of(get(shop, path))


def test_no_link_is_dead(shop):
    waiting, seen, pages = deque(["/"]), {"/"}, Counter()
    while waiting:
        path = waiting.popleft()
        response = get(shop, path)
        assert response.status == 200, f"{path}: {text_of(response)[:500]}"
        if not response.headers["content-type"].startswith("text/html"):
            continue
        for link in Reader(text_of(response)).links:
            target = urljoin(path, link).partition("#")[0]
            page = urlsplit(target).path
            if target not in seen and pages[page] < LINKS_PER_PAGE:
                seen.add(target)
                pages[page] += 1
                waiting.append(target)
    assert {"/document", "/merge", "/restore", "/branches", "/problem", "/stream"} <= set(pages)


def test_static_files_are_named_by_their_content_and_cached(shop):
    sources = Reader(text_of(get(shop, "/"))).sources
    assert len(sources) == 3
    for source in sources:
        response = get(shop, source)
        assert response.status == 200
        assert "immutable" in response.headers["cache-control"]
    assert get(shop, "/static/explorer.css").status == 404
    assert get(shop, "/static/..%2Fexplorer.py").status == 404


def test_the_first_page_is_small(shop):
    page = get(shop, "/")
    sources = Reader(text_of(page)).sources
    assert len(page.text) + sum(len(get(shop, source).text) for source in sources) < 50_000
    assert len(sources) + 1 <= 5


def test_empty_lists_show_the_command_that_fills_them(empty):
    assert "No streams yet" in text_of(get(empty, "/streams"))
    assert "fourfold space set" in text_of(get(empty, "/documents"))
    assert "No keys yet" in text_of(get(empty, "/keys"))
    assert "store.sessions.create" in text_of(get(empty, "/sessions"))
    assert "store.graphs.create" in text_of(get(empty, "/graphs"))
    assert "Nothing was written yet" in text_of(get(empty, "/"))
    assert "fourfold publish" in text_of(get(empty, "/archive"))
    assert "fourfold pipeline run materialize" in text_of(get(empty, "/pipeline"))
    assert "/v1/jobs" in text_of(get(empty, "/jobs"))


def test_browser_gets_page_about_error_and_program_gets_json(shop):
    page = get(shop, f"/document?{SPACE}&id=missing")
    assert page.status == 404
    assert "<h1>" in text_of(page)
    assert "not_found" in text_of(page)
    assert get(shop, "/stream?name=none").status == 404
    assert get(shop, "/stream.json?name=none").headers["content-type"] == "application/json"
    assert get(shop, "/nowhere", {}).headers["content-type"] == "application/json"
    assert get(shop, "/stream?name=orders&unknown=1").status == 400
    assert get(shop, "/streams?at=yesterday").status == 400
    assert get(shop, "/stream?name=orders&start=-1").status == 400


@pytest.mark.parametrize(
    "path", [path for path in PAGES if "at=" not in path and "/fork" not in path]
)
def test_the_time_goes_along_with_every_link(shop, path):
    at = "2031-01-01T00:00:00Z"
    body = text_of(get(shop, f"{path}{'&' if '?' in path else '?'}{urlencode({'at': at})}"))
    assert "As of" in body
    links = Reader(body).links
    # Those of the API and of one's own point have no time; two links return to now.
    elsewhere = ("/v1/", "/health", "/livez", "/readyz", "/metrics", "/openapi.json", "#")
    without = [
        link for link in links if "at=" not in link and not link.startswith((*elsewhere, "/fork"))
    ]
    assert {urlsplit(link).path for link in without} == {urlsplit(path).path}
    assert len(without) == 2
    assert sum("at=2031" in link for link in links) > 5


def test_the_home_of_the_past_shows_what_was_newest_then(own_shop):
    data = json.loads(text_of(get(own_shop, "/index.json", {})))
    until = min(entry["at_ms"] for entry in data["recent"]) - 1
    at = datetime.fromtimestamp(until / 1000, UTC).isoformat().replace("+00:00", "Z")
    past = json.loads(text_of(get(own_shop, f"/index.json?{urlencode({'at': at})}", {})))
    assert past["recent"]
    assert all(entry["at_ms"] <= until for entry in past["recent"])
    body = text_of(get(own_shop, f"/?{urlencode({'at': at})}"))
    assert "entries in the hour before" in body


def test_past_lists_offer_no_creation_of_existing_items(shop):
    for path in ("/documents", "/streams", "/sessions", "/graphs"):
        body = text_of(get(shop, f"{path}?at=2001-01-01"))
        assert "created until then" in body, path
        assert "yet</h1>" not in body, path


def test_lists_show_what_existed_at_the_time(own_shop):
    def data(path, at=""):
        return json.loads(text_of(get(own_shop, f"{path}.json?{urlencode({'at': at})}", {})))

    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    for path, rows in (("/documents", "spaces"), ("/sessions", "sessions"), ("/graphs", "apps")):
        assert data(path, now)[rows], path
        assert data(path, "2001-01-01")[rows] == [], path
    models = data("/index", "2001-01-01")["overview"]["models"]
    assert [model["count"] for model in models] == [0, 0, 0, 0]
    assert {model["bytes"] for model in models} == {None}


def test_words_of_documents_are_searched_on_page_of_space(shop, empty):
    body = text_of(get(shop, f"/space?{SPACE}&q=gre*"))
    assert "<mark>Green</mark> tea" in body
    assert "Cup" not in body.split("Newest commits")[0]
    assert "1 of 1 document with these words" in text_of(get(shop, f"/space?{SPACE}&q=green"))
    assert "No document has these words" in text_of(get(shop, f"/space?{SPACE}&q=nothing"))
    assert "no word that must occur" in text_of(get(shop, f"/space?{SPACE}&q=-x"))
    before = text_of(get(shop, f"/space?{SPACE}&q=tall&at=3"))
    assert "No document has these words" in before


def test_a_seq_goes_along_only_within_its_space(shop):
    links = Reader(text_of(get(shop, f"/document?{DOCUMENT}&at=8"))).links
    assert any(link.startswith("/space?") and "at=8" in link for link in links)
    assert all("at=" not in link for link in links if link.startswith("/streams"))


def test_a_stream_shows_what_it_had_at_a_time(shop):
    records = json.loads(get(shop, "/stream.json?name=orders").text)["records"]
    newest, older = records[0]["number"], records[20]
    at = older["ts_ms"] / 1000
    time = json.loads(get(shop, f"/stream.json?name=orders&at={_iso(at)}").text)
    assert newest == 119
    assert 0 < time["records"][0]["number"] <= newest
    assert time["records"][0]["ts_ms"] <= older["ts_ms"]
    assert json.loads(get(shop, "/stream.json?name=orders&at=2001-01-01").text)["records"] == []


def _iso(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def test_records_are_paged_and_filtered(shop):
    page = json.loads(get(shop, "/stream.json?name=orders").text)
    assert [page["records"][0]["number"], page["older"]] == [119, 70]
    older = json.loads(get(shop, "/stream.json?name=orders&until=70").text)
    assert older["records"][0]["number"] == 69
    found = json.loads(get(shop, "/stream.json?name=orders&field=status&value=%22paid%22").text)
    assert {json.loads(row["text"])["status"] for row in found["records"]} == {"paid"}
    assert json.loads(get(shop, "/streams.json").text)["next_after"] is not None


def test_document_page_shows_any_seq_with_changes_and_authors(shop):
    page = json.loads(get(shop, f"/document.json?{DOCUMENT}&at=8&from=3&blame=1").text)
    assert page["state"]["document"]["items"][0]["qty"] == 9
    assert [(row["path"], row["before"], row["after"]) for row in page["changes"]] == [
        ("/items/0/qty", 4, 9),
        ("/total", 18.0, 40.5),
    ]
    assert page["authors"]["/total"] == 8
    assert page["authors"]["/status"] == 1
    deleted = json.loads(get(shop, f"/document.json?{SPACE}&id=order:1041").text)
    assert deleted["state"]["op"] == "delete"


def test_a_session_is_shown_at_any_event(shop):
    page = json.loads(get(shop, "/session.json?sid=support/1042").text)
    entries = [
        (entry["role"], entry["kind"]) for turn in page["turns"] for entry in turn["entries"]
    ]
    assert entries == [
        ("session", "status"),
        ("user", "message"),
        ("tool", "failed"),
        ("assistant", "message"),
        ("turn", "end"),
    ]
    assert page["turns"][1]["status"] == "final"
    assert [span["row"] for span in page["timeline"]["spans"]] == ["turns", "steps", "tools"]
    assert page["heads"][0]["kind"] == "turn-final"
    then = json.loads(get(shop, "/session.json?sid=support/1042&at=3").text)
    assert [then["event_id"], then["turns"][1]["status"], then["heads"]] == [3, "running", []]
    assert "event 3</span>" in text_of(get(shop, "/session?sid=support/1042&at=3"))


def test_a_session_adds_up_its_usage_and_opens_its_payloads(shop):
    page = json.loads(get(shop, f"/session.json?sid={AGENT}").text)
    assert [column["label"] for column in page["usage"]["columns"]] == ["In", "Out", "Cost"]
    assert [row["steps"] for row in page["usage"]["rows"]] == [3, 3]
    assert page["usage"]["tokens"] == 2 * (100 + 200 + 300 + 10 + 20 + 30)
    assert round(page["usage"]["cost"], 6) == 2 * 0.006
    then = json.loads(get(shop, f"/session.json?sid={AGENT}&at=7").text)
    assert then["usage"]["total"]["usage"]["input_tokens"] == 100
    tools = [entry for entry in page["turns"][1]["entries"] if entry["role"] == "tool"]
    assert [entry["note"] for entry in tools] == ["search", "refund"]
    assert tools[0]["size"] > 512
    assert tools[0]["text"]["text"].startswith("Goods that arrive broken")
    assert tools[1]["text"]["text"] == "ValueError: above the limit"


def test_timeline_has_children_and_leaves_out_time_between_turns(shop):
    page = json.loads(get(shop, f"/session.json?sid={AGENT}").text)["timeline"]
    spans = {(span["row"], span["name"]): span for span in page["spans"]}
    assert spans["children", "1.2.1"]["failed"] is False
    assert spans["tools", "refund"]["failed"] is True
    assert [head["number"] for head in page["heads"]] == [1, 2]
    first, second = spans["turns", "turn 1"], spans["turns", "turn 2"]
    assert 0 <= first["start"] <= first["end"] <= second["start"] <= second["end"]
    assert page["total_ms"] >= second["end"]


def test_a_lineage_is_a_tree_from_the_first_session_down(shop):
    rows = json.loads(get(shop, "/session.json?sid=agent/fork").text)["lineage"]["rows"]
    assert [(row["sid"], row["depth"], row["label"]) for row in rows] == [
        (AGENT, 0, ""),
        (f"{AGENT}/1.2.1", 1, "child"),
        (f"{AGENT}/2.5.1", 1, "child"),
        ("agent/fork", 1, "fork"),
    ]
    assert rows[3]["at"] == 15
    assert rows[0]["events"] > rows[3]["events"]


def test_an_app_shows_its_newest_transactions(shop):
    page = json.loads(get(shop, "/app.json?app=crm").text)
    assert [bar["size"] for bar in page["bars"]] == [1] * 8
    seqs = [bar["seq"] for bar in page["bars"]]
    assert (page["before"], page["after"], page["seq"]) == (seqs[-2], None, seqs[-1])
    then = json.loads(get(shop, f"/app.json?app=crm&at={seqs[2]}").text)
    assert (then["before"], then["after"]) == (seqs[1], seqs[3])
    assert then["bars"][0]["url"] == f"/app?app=crm&at={seqs[0]}"
    # Its feed ends where the log of all apps ends, also without rows of its own.
    assert get(shop, "/app.json?app=system").status == 200


def test_two_heads_are_compared(shop):
    page = json.loads(get(shop, f"/compare.json?sid={AGENT}").text)
    assert [page["one"]["id"], page["common"]["id"]] == [page["one"]["id"]] * 2
    assert page["variables"] == [{"sign": "~", "name": "refunds"}]
    assert [page["only"]["one"]["count"], page["only"]["other"]["count"]] == [0, 2]
    assert [row["role"] for row in page["only"]["other"]["rows"]] == ["user", "assistant"]
    swapped = f"/compare.json?sid={AGENT}&one={page['other']['id']}&other={page['one']['id']}"
    assert json.loads(get(shop, swapped).text)["only"]["one"]["count"] == 2


def test_a_fork_is_previewed(shop):
    page = json.loads(get(shop, f"/fork.json?sid={AGENT}&event=3").text)
    assert [page["event"], page["kept"], page["model"]] == [3, 1, "small"]
    assert page["messages"][0]["text"] == {"text": "Refund it."}
    newest = json.loads(get(shop, f"/fork.json?sid={AGENT}").text)
    assert newest["kept"] == 4
    assert newest["variables"] == ["refunds"]


def test_blobs_are_listed_and_previewed(shop):
    rows = json.loads(get(shop, f"/blobs.json?{SPACE}").text)["blobs"]
    kinds = {row["content_type"]: row for row in rows}
    assert kinds["image/png"]["name"] == "brewing.png"
    assert {row["kind"] for row in rows} == {"picture", "text", "bytes"}
    previews = {
        kind: json.loads(get(shop, f"/blob.json?{SPACE}&hash={row['hash']}").text)["preview"]
        for kind, row in kinds.items()
    }
    assert previews["image/png"] == {"kind": "picture"}
    assert previews["text/html"]["text"].startswith("<script>")
    assert previews["application/octet-stream"]["lines"][0].startswith("00000000  00 01 02")
    page = text_of(get(shop, f"/blob?{SPACE}&hash={kinds['text/html']['hash']}"))
    assert "&lt;script&gt;alert(1)" in page
    assert get(shop, f"/blob?{SPACE}&hash=sha256:{'0' * 64}").status == 404
    download = get(shop, kinds["text/html"]["url"])
    assert "sandbox" in download.headers["content-security-policy"]


def test_the_archive_shows_what_is_only_on_this_disk(tmp_path):
    root = tmp_path / "shop"
    with fourfold.open(root) as store:
        store.space(DID).set(ORDER, {"status": "draft"})
        store.publish()
        store.space(DID).set(ORDER, {"status": "paid"})
        store.space("did:web:new.example").set(ORDER, {})
    server = Served(root)
    try:
        page = json.loads(get(server, "/archive.json").text)
        assert [(row["name"], row["only_here"]) for row in page["databases"]] == [
            ("spaces/did:web:new.example", 1),
            (f"spaces/{DID}", 1),
        ]
        assert [page["lagging"], len(page["points"])] == [2, 1]
        body = text_of(get(server, "/archive"))
        assert f"--at {page['points'][0]['id']}" in body
        assert "never published" in body
        assert page["lag_ms"] >= 0
        # The store as of the point: the second commit and the new space came later.
        at = urlencode({"at": page["points"][0]["id"]})
        assert f'href="/?{at}"' in body
        past = json.loads(get(server, f"/document.json?{DOCUMENT}&{at}").text)
        assert past["state"]["document"] == {"status": "draft"}
    finally:
        server.kill()


def test_an_object_shows_its_neighbours_at_any_seq(shop):
    page = json.loads(get(shop, "/object.json?app=crm&id=1").text)
    assert [(row["name"], row["is_from"]) for row in page["edges"]] == [
        ("about Ada", False),
        ("placed", True),
        ("placed", True),
    ]
    assert page["object"]["name"] == page["attributes"][0]["value"] == "Ada"
    first = page["object"]["seq"]
    then = json.loads(get(shop, f"/object.json?app=crm&id=1&at={first}").text)
    assert [then["edges"], then["attributes"]] == [[], []]
    assert get(shop, "/object?app=crm&id=99").status == 404


def test_an_object_shows_what_changed_between_two_seqs(shop):
    page = json.loads(get(shop, "/object.json?app=crm&id=1").text)
    assert page["seqs"] == sorted(page["seqs"])
    assert len(page["bars"]) == len(page["seqs"]) == 5
    since = page["seqs"][1]
    span = json.loads(get(shop, f"/object.json?app=crm&id=1&from={since}").text)
    assert [row["state"] for row in span["edges"]] == ["new"] * 3
    assert [row["seq"] for row in span["changes"]] == page["seqs"][:1:-1]
    near = json.loads(get(shop, "/object.json?app=crm&id=2").text)["graph"]
    assert {node["column"] for node in near["nodes"]} == {-2, -1, 0}
    alone = json.loads(get(shop, "/object.json?app=crm&id=2&depth=1").text)["graph"]
    assert {node["column"] for node in alone["nodes"]} == {-1, 0}


def post(server, path, fields, headers=None):
    headers = {
        **BROWSER,
        "Content-Type": "application/x-www-form-urlencoded",
        **({"Origin": f"http://127.0.0.1:{server.port}"} if headers is None else headers),
    }
    return server.ask("POST", path, urlencode(fields), headers)


def test_forms_change_the_store_and_check_what_they_showed(own_shop):
    fields = {"did": DID, "id": ORDER, "seq": 5}
    current = json.loads(get(own_shop, f"/document.json?{DOCUMENT}").text)["newest"]["seq"]
    moved = post(own_shop, "/restore", {**fields, "current": current - 1})
    assert moved.status == 303
    assert "moved=1" in moved.headers["location"]
    assert "changed after the preview" in text_of(get(own_shop, moved.headers["location"]))
    done = post(own_shop, "/restore", {**fields, "current": current})
    assert done.status == 303
    assert "/document?" in done.headers["location"]
    state = json.loads(get(own_shop, f"/document.json?{DOCUMENT}").text)["state"]
    assert state["document"]["items"][0]["qty"] == 6
    branch = post(
        own_shop, "/branch", {"did": DID, "id": ORDER, "name": "then", "seq": 4, "token": "t"}
    )
    assert branch.status == 303
    shown = json.loads(get(own_shop, f"/document.json?{DOCUMENT}&branch=then").text)
    assert shown["state"]["document"]["items"][0]["qty"] == 5


def test_a_session_is_forked_at_an_event(own_shop):
    done = post(
        own_shop, "/fork", {"sid": "support/1042", "name": "support/b", "event": 3, "token": "t"}
    )
    assert [done.status, done.headers["location"]] == [303, "/session?sid=support%2Fb"]
    page = json.loads(get(own_shop, "/session.json?sid=support/b").text)
    assert [row["sid"] for row in page["lineage"]["rows"]] == ["support/1042", "support/b"]
    assert (
        post(
            own_shop, "/fork", {"sid": "support/1042", "name": "", "event": 3, "token": "t"}
        ).status
        == 400
    )


def test_merge_needs_every_conflict_decided_and_state_that_was_shown(own_shop):
    address = f"/merge.json?{SPACE}&source=discount"
    preview = json.loads(get(own_shop, address).text)
    assert preview["conflicts"] == 1
    row = preview["entities"][0]["rows"][0]
    assert [row["path"], row["base"], row["target"], row["source"]] == ["/total", 63.0, 70.0, 67.5]
    fields = {"did": DID, "source": "discount", "target": "", "etag": preview["etag"]}
    assert "moved=1" in post(own_shop, "/merge", fields).headers["location"]
    decided = {"id.1": ORDER, "path.1": "/total", "choice.1": "value", "value.1": "68"}
    stale = {**fields, **decided, "etag": '"1-1"'}
    assert "moved=1" in post(own_shop, "/merge", stale).headers["location"]
    assert post(own_shop, "/merge", {**fields, **decided, "value.1": "{"}).status == 400
    assert "/branches" in post(own_shop, "/merge", {**fields, **decided}).headers["location"]
    document = json.loads(get(own_shop, f"/document.json?{DOCUMENT}").text)["state"]["document"]
    assert [document["total"], document["status"], document["coupon"]] == [68, "paid", "TEA10"]


def test_a_form_of_a_foreign_page_is_refused(own_shop):
    fields = {"did": DID, "name": "evil"}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert post(own_shop, "/branch", fields, headers).status == 403
    branches = json.loads(get(own_shop, f"/branches.json?{SPACE}").text)["branches"]
    assert "evil" not in {branch["name"] for branch in branches}


def test_lists_of_a_stream_have_empty_states(shop):
    page = text_of(get(shop, "/stream?name=orders"))
    for text in ("No segments yet", "No producers.", "No subscription follows", "No schema:"):
        assert text in page
    data = json.loads(get(shop, "/stream.json?name=orders", {}).text)
    assert [data[name]["items"] for name in ("segments", "producers", "subscriptions")] == [[]] * 3
    assert get(shop, "/stream?name=orders&segments=x").status == 400


def test_a_mounted_server_has_links_below_its_path(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.streams.create("orders", content_type="application/json")
        protocol = StreamProtocol(store.streams)
        protocol.add_pages(Explorer(protocol, "store"))
        request = Request("GET", "/streams", headers={"host": "localhost"}, root="/fold")
        page = Reader(asyncio.run(protocol.handle(request)).body.decode())
    links = [link for link in page.links if not link.startswith("#")]
    assert links
    assert all(link.startswith("/fold/") for link in links + page.sources)


def test_pages_are_not_part_of_the_description_of_the_api(shop):
    paths = json.loads(get(shop, "/openapi.json", {}).text)["paths"]
    assert "/v1/store" in paths
    assert not [path for path in paths if re.match(r"/(stream|document|login|static)\b", path)]


# Keys


# Jobs


def test_a_job_is_previewed_and_started_once_by_its_form(own_shop):
    page = json.loads(get(own_shop, "/run.json?kind=snapshots").text)
    assert [label for label, _ in page["preview"]] == ["Documents"]
    fields = {"kind": "snapshots", "token": page["token"]}
    first = post(own_shop, "/run", fields)
    again = post(own_shop, "/run", fields)
    assert (first.status, first.headers["location"]) == (303, "/job?id=1")
    assert again.headers["location"] == "/job?id=1"
    own_shop.ask("GET", "/v1/jobs/1/events")
    job = json.loads(get(own_shop, "/job.json?id=1").text)["job"]
    assert (job["status"], job["percent"]) == ("succeeded", 100)
    assert ["Spaces", "0"] in job["result"] or ["Spaces", "1"] in job["result"]
    assert "snapshots" in text_of(get(own_shop, "/"))
    backup = {"kind": "backup", "name": "by-hand", "token": "b"}
    assert post(own_shop, "/run", backup).headers["location"] == "/job?id=2"
    own_shop.ask("GET", "/v1/jobs/2/events")
    assert "by-hand" in text_of(get(own_shop, "/archive"))
    preview = dict(json.loads(get(own_shop, "/run.json?kind=backup").text)["preview"])
    assert preview["Backups so far"] == "1, newest by-hand"


def test_an_upload_is_previewed_and_loaded_by_its_form(own_shop):
    assert json.loads(get(own_shop, "/run.json?kind=load").text)["uploads"] == []
    assert own_shop.ask("PUT", "/v1/uploads/new.ndjson", b'{"id": "loaded", "n": 1}').status == 201
    page = json.loads(get(own_shop, "/run.json?kind=load&upload=new.ndjson").text)
    assert page["preview"][0][1].startswith("new.ndjson: 24 B, sent ")
    assert "Start load of documents" in text_of(get(own_shop, "/run?kind=load&upload=new.ndjson"))
    fields = {"kind": "load", "upload": "new.ndjson", "model": "documents", "target": DID}
    done = post(own_shop, "/run", {**fields, "token": page["token"]})
    assert done.headers["location"] == "/job?id=1"
    own_shop.ask("GET", "/v1/jobs/1/events")
    assert json.loads(get(own_shop, "/job.json?id=1").text)["job"]["status"] == "succeeded"
    assert '"n"' in text_of(get(own_shop, f"/document?did={DID}&id=loaded"))


def test_the_health_shows_metrics_probes_and_the_last_verification(own_shop):
    data = json.loads(text_of(get(own_shop, "/status.json", {})))
    assert [check["label"] for check in data["checks"] if check["name"] == "Verify"] == ["not yet"]
    own_shop.ask("POST", "/v1/jobs", b'{"kind": "verify"}', {"content-type": "application/json"})
    # Events are sent until the job has ended.
    own_shop.ask("GET", "/v1/jobs/1/events")
    own_shop.ask("POST", "/v1/stream/orders", b'{"id": 1}', {"content-type": "application/json"})
    body = text_of(get(own_shop, "/status"))
    assert "succeeded, job 1" in body
    assert {"/livez", "/readyz", "/health", "/metrics"} <= set(Reader(body).links)
    data = json.loads(text_of(get(own_shop, "/status.json", {})))
    (row,) = [row for row in data["metrics"] if row["model"] == "streams"]
    assert row["commits"] >= 1
    assert row["mean_ms"] > 0


def test_jobs_cannot_be_started_or_cancelled_by_another_site(shop):
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    jobs = get(shop, "/v1/jobs").text
    assert post(shop, "/run", {"kind": "gc", "token": "t"}, foreign).status == 403
    assert post(shop, "/cancel", {"id": "1"}, foreign).status == 403
    assert get(shop, "/v1/jobs").text == jobs


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"kind": "rm", "token": "t"}, 400),
        ({"kind": "gc"}, 400),
        ({"kind": "gc", "token": ""}, 400),
        ({"kind": "backup", "name": "../x", "token": "t"}, 400),
        ({"kind": "materialize", "model": "none", "token": "t"}, 400),
    ],
)
def test_a_form_with_wrong_fields_starts_no_job(shop, fields, status):
    jobs = get(shop, "/v1/jobs").text
    assert post(shop, "/run", fields).status == status
    assert get(shop, "/v1/jobs").text == jobs


def test_the_past_shows_its_jobs_and_starts_none(shop):
    page = json.loads(get(shop, "/jobs.json?at=2001-01-01").text)
    assert (page["jobs"], page["is_empty"]) == ([], False)
    past = json.loads(get(shop, "/pipeline.json?at=2001-01-01").text)
    assert [past[name] for name in ("runs", "folders", "live")] == [[], [], []]
    for path in ("/run?kind=gc", "/jobs", "/pipeline", "/job?id=1"):
        body = text_of(get(shop, f"{path}{'&' if '?' in path else '?'}at=2031-01-01"))
        assert 'method="post"' not in body, path


def test_the_pipeline_shows_runs_and_tables_without_paths(shop):
    page = json.loads(get(shop, "/pipeline.json").text)
    assert [(run["job"], run["state"]) for run in page["runs"]] == [
        ("fail", "failed"),
        ("write-tables", "done"),
    ]
    assert page["runs"][1]["rate"] >= 0
    [folder] = page["folders"]
    assert (folder["tables"][0]["rows"], folder["watermarks"]) == (2, {DID: 21})
    body = text_of(get(shop, "/pipeline"))
    assert str(shop.root.parent) not in body
    assert "a page is damaged" in body
    assert "shop-ids" in body
    only = json.loads(get(shop, "/pipeline.json?job=fail").text)
    assert [run["job"] for run in only["runs"]] == ["fail"]


def test_documents_of_a_space_are_filtered_by_facets(shop):
    page = text_of(get(shop, f"/space?{SPACE}"))
    link = next(link for link in Reader(page).links if "where=" in link and "paid" in link)
    filtered = text_of(get(shop, link)).split("Newest commits")[0]
    assert "By the index by_status: 1 documents read." in filtered
    assert ORDER in filtered
    assert "sku:tea-100" not in filtered
    assert "must be JSON" in text_of(get(shop, f"/space?{SPACE}&where=no-filter"))
