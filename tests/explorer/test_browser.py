"""Pages in a real browser: wide and narrow, light and dark, stories, hostile names, no script."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from urllib.parse import quote, urlencode

import pytest
from shop_store import AGENT, DID, ORDER, PICTURE, PROBE

from fourfold.server.auth import Access

SPACE = urlencode({"did": DID})
DOCUMENT = urlencode({"did": DID, "id": ORDER})
QUERY = "select stream, records, bytes from streams_streams order by 1 limit 20"
PATTERN = json.dumps({"nodes": {"a": {}}, "steps": [{"from": "a", "to": "b"}]})
PAGES = {
    "home": "/",
    "search": "/search?prefix=o",
    "spaces": "/documents",
    "space": f"/space?{SPACE}",
    "space without words": "/space?did=did:web:notes.example&q=x",
    "document": f"/document?{DOCUMENT}",
    "past document": f"/document?{DOCUMENT}&at=8&from=3&blame=1",
    "restore": f"/restore?{DOCUMENT}&seq=6",
    "branches": f"/branches?{SPACE}",
    "merge": f"/merge?{SPACE}&source=discount",
    "blobs": f"/blobs?{SPACE}",
    "blob": f"/blob?{SPACE}&hash=sha256:{sha256(PICTURE).hexdigest()}",
    "memories": "/memories",
    "memory": "/memory?did=did:memory:assistant",
    "memory search": "/memory?did=did:memory:assistant&q=soup&namespace=users",
    "item": "/item?did=did:memory:assistant&id=users/ada//food",
    "forgotten item": "/item?did=did:memory:assistant&id=policy//refund",
    "archive": "/archive",
    "streams": "/streams",
    "stream": "/stream?name=orders",
    "text stream": "/stream?name=logs/till-1",
    "sessions": "/sessions",
    "session": "/session?sid=support/1042",
    "past session": "/session?sid=support/1042&at=4",
    "agent": f"/session?sid={AGENT}",
    "compare": f"/compare?sid={AGENT}",
    "fork": f"/fork?sid={AGENT}&event=4",
    "leases": "/leases",
    "graphs": "/graphs",
    "app": "/app?app=crm",
    "object": "/object?app=crm&id=1",
    "path": "/path?app=crm&start=1&end=3",
    "match": f"/match?{urlencode({'app': 'crm', 'pattern': PATTERN})}",
    "sync": "/sync",
    "sql": "/sql",
    "sql result": f"/sql?{urlencode({'query': QUERY})}",
    "sql error": "/sql?query=select+1+from+unknown",
    "pipeline": "/pipeline",
    "jobs": "/jobs",
    "job": "/job?id=1",
    "run": "/run",
    "run materialize": "/run?kind=materialize",
    "run load": "/run?kind=load",
    "health": "/status",
    "keys": "/keys",
    "audit log": "/audit",
    "new key": "/newkey?documents=1&read=1&prefix=did:web:shop",
    "problems": "/problems",
    "problem": "/problem?kind=not_found",
}
INJECTED = "img:not([src^='/v1/spaces/']), iframe, object, embed, [onerror]"
NAMELESS = r"- (link|button|textbox|combobox|slider|radio)\s*$"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}


def test_pages_are_accessible_without_problems_or_sideways_scroll(visit, shop):
    visitor = visit(shop, viewport=NARROW, color_scheme="light")
    page = visitor.page
    for name, path in PAGES.items():
        assert visitor.open(path).status == 200, name
        for viewport, scheme in ((NARROW, "dark"), (WIDE, "light"), (WIDE, "dark")):
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme=scheme)
            assert not visitor.has_sideways_scroll(), (name, viewport, scheme)
        check_landmarks_and_names(page, name)
        assert visitor.problems == [], name
        page.set_viewport_size(NARROW)


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_stream_lists_its_segments_producers_and_subscriptions(visit, payments, viewport):
    visitor = visit(payments, viewport=viewport)
    page = visitor.page
    visitor.open("/stream?name=payments")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert not visitor.has_sideways_scroll()
    segments = page.get_by_role("table", name="Segments of payments")
    assert segments.get_by_role("row").count() == 11
    assert "published" in segments.inner_text()
    assert "this disk only" not in segments.inner_text()
    producers = page.get_by_role("table", name="Producers of payments")
    assert "till-09" in producers.inner_text()
    subscriptions = page.get_by_role("table", name="Subscriptions of payments")
    assert "audit" in subscriptions.inner_text()
    assert "1" in subscriptions.inner_text()
    page.locator("a[href*='segments=']").click()
    page.wait_for_url("**/stream?name=payments&segments=*")
    assert "this disk only" in segments.inner_text()
    page.locator("a[href*='producers=']").click()
    page.wait_for_url("**/stream?name=payments&producers=*")
    assert "till-11" in producers.inner_text()
    assert "till-09" not in producers.inner_text()
    assert visitor.problems == []


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_sync_shows_peers_domains_logs_and_forks(visit, exchanged, viewport):
    visitor = visit(exchanged, viewport=viewport)
    page = visitor.page
    visitor.open("/graphs")
    page.get_by_role("link", name="Sync").click()
    page.wait_for_url("**/sync")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert not visitor.has_sideways_scroll()
    check_landmarks_and_names(page, "sync")
    rights = page.get_by_role("table", name="Peers and their rights")
    assert "read, write" in rights.inner_text()
    assert page.get_by_role("table", name="Logs of talk").get_by_role("row").count() == 4
    assert page.get_by_role("table", name="Forks").get_by_role("row").count() == 2
    assert visitor.problems == []


def test_empty_pages_have_no_problem(visit, empty):
    visitor = visit(empty, viewport=NARROW)
    for path in (
        "/streams",
        "/documents",
        "/memories",
        "/keys",
        "/jobs",
        "/pipeline",
        "/",
        "/sql",
        "/audit",
        "/sync",
    ):
        assert visitor.open(path).status == 200, path
        assert not visitor.has_sideways_scroll(), path
        assert visitor.problems == [], path


def check_landmarks_and_names(page, name):
    snapshot = page.locator("body").aria_snapshot()
    for landmark in ("banner", "main", "contentinfo", 'navigation "Models"'):
        assert f"- {landmark}" in snapshot, f"{name}: {landmark}"
    assert snapshot.count("[level=1]") == 1, name
    # Links, buttons and fields without a name are listed without one.
    assert not re.search(NAMELESS, snapshot, re.MULTILINE), name


def test_a_narrow_navigation_shows_the_current_page(visit, shop):
    page = visit(shop, viewport=NARROW).page
    page.goto("/status")
    current = page.locator(".nav [aria-current]").bounding_box()
    assert 0 <= current["x"] <= NARROW["width"] - current["width"]


def test_the_first_page_takes_few_requests(visit, shop):
    visitor = visit(shop)
    visitor.open("/")
    assert len(visitor.requests) <= 5


def test_the_content_is_the_first_stop_of_the_keyboard(visit, shop):
    page = visit(shop).page
    page.goto("/streams")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_keys_move_open_and_search(visit, shop):
    page = visit(shop).page
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/streams")
    page.keyboard.press("j")
    page.keyboard.press("j")
    chosen = page.locator("tr[aria-selected=true] a").first
    name = chosen.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/stream?**")
    assert page.locator("h1").inner_text() == name
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("orders\n")
    page.wait_for_url("**/search?**")
    page.get_by_role("link", name="orders", exact=True).click()
    page.wait_for_url("**/stream?name=orders")


def test_the_time_bar_steps_without_a_new_page(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    page.goto(f"/document?{DOCUMENT}")
    first = page.evaluate("performance.timeOrigin")
    show = page.get_by_label("Show", exact=True).last
    assert show.get_attribute("aria-valuetext") == "seq 21"
    show.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.get_by_text("State at seq 11", exact=True).wait_for()
    assert "at=11" in page.url
    assert page.locator("#past").is_visible()
    assert page.locator("#part .changed").count() > 0
    page.get_by_label("Compare from").focus()
    page.keyboard.press("Home")
    page.get_by_role("heading", name="Changes since seq 1", exact=True).wait_for()
    assert page.evaluate("performance.timeOrigin") == first
    page.reload()
    assert page.get_by_text("State at seq 11", exact=True).is_visible()
    assert page.get_by_role("heading", name="Changes since seq 1", exact=True).is_visible()
    page.get_by_role("link", name="Return to now").click()
    page.get_by_text("State at seq 21", exact=True).wait_for()
    assert visitor.problems == []


def test_bars_are_links_to_the_states_that_they_made(visit, shop):
    page = visit(shop, java_script_enabled=False).page
    page.goto(f"/document?{DOCUMENT}")
    page.locator("a[data-seq='6']").click()
    assert page.get_by_text("State at seq 6", exact=True).is_visible()
    assert not page.get_by_label("Compare from").is_visible()


def test_a_document_is_branched_restored_and_merged(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    page.goto(f"/document?{DOCUMENT}&at=6")
    page.get_by_text("Branch from here").click()
    page.get_by_label("Name of the new branch").fill("try-out")
    page.get_by_role("button", name="Create branch").click()
    page.wait_for_url("**branch=try-out**")
    assert page.locator(".json").inner_text().count('"qty": 7') == 1
    page.goto(f"/document?{DOCUMENT}&at=6")
    page.get_by_role("link", name="Restore this state").click()
    page.get_by_role("button", name=re.compile("Restore as seq")).click()
    page.wait_for_url("**/document?**")
    assert page.locator(".json").inner_text().count('"qty": 7') == 1

    page.goto(f"/branches?{SPACE}")
    page.get_by_role("row", name=re.compile("^discount")).get_by_role("link", name="Merge").click()
    page.get_by_text("decided", exact=False).first.wait_for()
    page.keyboard.press("n")
    page.keyboard.press("2")
    assert page.locator("#decided").inner_text().startswith("1 of ")
    conflicts = page.locator("tr.conflict").count()
    for _ in range(conflicts - 1):
        page.keyboard.press("n")
        page.keyboard.press("2")
    shown = json.loads(page.locator("#request").inner_text())
    assert shown["source"] == "discount"
    assert [row["path"] for row in shown["resolutions"]] == ["/total"]
    assert all(row.get("choice") or "value" in row for row in shown["resolutions"])
    page.get_by_role("button", name=re.compile("Merge into main")).click()
    page.wait_for_url("**/branches?**")
    page.goto(f"/document?{DOCUMENT}")
    assert '"coupon": "TEA10"' in page.locator(".json").inner_text()
    assert visitor.problems == []


def test_an_undecided_conflict_keeps_the_form_from_being_sent(visit, own_shop):
    page = visit(own_shop).page
    page.goto(f"/merge?{SPACE}&source=discount")
    page.get_by_role("button", name=re.compile("Merge into main")).click()
    assert "/merge?" in page.url
    assert page.evaluate("document.querySelector('#merge').checkValidity()") is False


def test_the_tail_shows_new_records_and_can_be_paused(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    page.goto("/stream?name=orders")
    page.get_by_role("button", name="Pause").wait_for()

    def append(number):
        body = f'{{"id": {number}, "note": "<b>new</b>"}}'
        own_shop.stream("POST", "orders", body, Content_Type="application/json")

    append(1000)
    page.locator("#r120").wait_for()
    assert page.locator("#tail-rows tbody tr").first.get_attribute("id") == "r120"
    assert "<b>new</b>" in page.locator("#r120").inner_text()
    page.get_by_role("button", name="Pause").click()
    append(1001)
    page.get_by_text("1 waiting").wait_for()
    assert page.locator("#r121").count() == 0
    page.get_by_role("button", name="Continue").click()
    page.locator("#r121").wait_for()
    page.get_by_text("2 new").wait_for()
    assert visitor.problems == []


def test_a_tail_with_a_filter_shows_matching_records_only(visit, own_shop):
    page = visit(own_shop).page
    page.goto("/stream?name=orders&field=status&value=%22void%22")
    page.get_by_role("button", name="Pause").wait_for()
    for status in ("paid", "void"):
        own_shop.stream(
            "POST", "orders", f'{{"status": "{status}"}}', Content_Type="application/json"
        )
    page.locator("#r121").wait_for()
    assert page.locator("#tail-rows tbody tr").count() == 1


def test_picture_is_shown_and_page_of_blob_never_runs(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    page.goto(f"/blobs?{SPACE}")
    page.get_by_role("link", name="brewing.png").click()
    page.wait_for_url("**/blob?**")
    assert page.locator(".picture img").evaluate("image => image.naturalWidth") == 1
    page.go_back()
    page.get_by_role("row", name=re.compile("text.html")).get_by_role("link").first.click()
    page.get_by_text("<script>alert(1)</script>brewing").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == b"<script>alert(1)</script>brewing"
    assert visitor.problems == []


def test_a_graph_is_walked_from_object_to_object(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    page.goto("/graphs")
    page.get_by_role("link", name="crm", exact=True).click()
    page.get_by_role("link", name="customer 1", exact=True).click()
    page.wait_for_url("**/object?**")
    assert page.locator("h1").inner_text() == "Ada"
    page.locator("svg.neighbourhood a", has_text="order").first.click()
    page.wait_for_url(re.compile("id=(?!1$)"))
    assert page.locator("h1").inner_text().startswith("order")
    page.locator("svg.neighbourhood a", has_text="Ada").first.click()
    page.wait_for_url("**id=1")
    assert visitor.problems == []


def test_an_app_is_stepped_through_its_transactions(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    page.goto("/app?app=crm")
    bars = page.locator(".timebar a[data-seq]")
    objects = page.locator("table[data-rows] tbody tr")
    newest, count = bars.last.get_attribute("data-seq"), objects.count()
    assert (bars.count(), count) == (8, 4)
    page.keyboard.press("[")
    page.wait_for_url(re.compile(r"at=\d+$"))
    first = page.url
    page.keyboard.press("[")
    page.wait_for_url(lambda url: url != first)
    assert objects.count() == 3
    page.locator(f".timebar a[data-seq='{newest}']").click()
    page.wait_for_url(f"**at={newest}")
    assert objects.count() == 4
    assert visitor.problems == []


def test_the_neighbourhood_of_an_object_is_stepped_through_time(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    page.goto("/object?app=crm&id=1")
    first = page.evaluate("performance.timeOrigin")
    assert page.locator("svg.neighbourhood .node").count() == 4
    page.keyboard.press("[")
    page.wait_for_url("**at=**")
    page.locator("#part").get_by_text("about Ada").first.wait_for(state="detached")
    assert page.locator("svg.neighbourhood .node").count() == 3
    page.keyboard.press("Shift+ArrowLeft")
    page.locator("svg.neighbourhood .node.new").first.wait_for()
    assert page.locator("#past").is_visible()
    assert page.evaluate("performance.timeOrigin") == first
    page.reload()
    assert page.locator("svg.neighbourhood .node").count() == 3
    page.keyboard.press(".")
    page.wait_for_url(re.compile(r"id=1&from=\d+$"))
    assert visitor.problems == []


def test_a_session_shows_tokens_and_events_as_they_arrive(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    page.goto("/session?sid=support/1042")

    def send(verb, body):
        path = f"/v1/sessions/{verb}/support/1042"
        headers = {"Content-Type": "application/json"}
        assert own_shop.ask("POST", path, json.dumps(body), headers).status < 300

    # The feed starts after the page was read, so the first token may be early.
    while not page.locator("#live").is_visible():
        send("transients", {"items": ["Hel<b>lo</b>"]})
        page.wait_for_timeout(100)
    assert "Hel<b>lo</b>" in page.locator("#tokens").inner_text()
    message = {"role": "assistant", "content": "Hello <b>again</b>"}
    send("events", {"events": [{"type": "message/appended", "message": message}]})
    page.get_by_text("Hello <b>again</b>", exact=True).wait_for()
    assert not page.locator("#live").is_visible()
    assert visitor.problems == []


def test_a_session_is_walked_by_keys_and_forked(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    page.goto(f"/session?sid={AGENT}")
    page.keyboard.press("t")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    for _ in range(3):
        page.keyboard.press("j")
    chosen = page.locator(".entry[aria-selected=true]")
    event = chosen.get_attribute("data-event")
    assert page.locator("#fork").inner_text() == f"Fork at event {event}"
    page.keyboard.press("f")
    page.wait_for_url(f"**/fork?**event={event}")
    page.get_by_label("Id of the new session").fill("agent/tried")
    page.get_by_role("button", name=f"Fork after event {event}").click()
    page.wait_for_url("**/session?sid=agent%2Ftried")
    tree = page.locator(".tree li")
    assert tree.first.inner_text().startswith(AGENT)
    assert page.locator(".tree li.here").inner_text().startswith("agent/tried")
    tree.first.get_by_role("link").click()
    page.get_by_role("link", name="Compare heads").click()
    page.wait_for_url("**/compare?**")
    assert page.get_by_text("I may not, 2.", exact=True).is_visible()
    page.get_by_role("link", name="Swap").click()
    assert page.locator(".del .entry").count() == 2
    assert visitor.problems == []


def test_a_tool_call_is_opened_by_a_key(visit, shop):
    page = visit(shop).page
    page.goto(f"/session?sid={AGENT}")
    record = page.locator("#t1 .entry.tool details.record").first
    assert record.get_attribute("open") is None
    while not page.locator(".entry.tool[aria-selected=true]").count():
        page.keyboard.press("j")
    page.keyboard.press("o")
    assert record.get_attribute("open") is not None
    assert record.locator("pre").is_visible()


def test_a_job_is_followed_cancelled_and_run_again(visit, own_shop):
    # A pipe with the name of a payload: the check of it waits until the pipe is written.
    pipe = own_shop.root / "sessions" / "blobs" / f"{'0' * 64}.blob"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    visitor = visit(own_shop)
    page = visitor.page
    page.goto("/jobs")
    page.get_by_role("link", name="Run a job").click()
    page.get_by_role("link", name="verify").click()
    page.wait_for_url("**/run?kind=verify")
    page.get_by_role("button", name="Start verify").click()
    page.wait_for_url("**/job?id=1")
    first = page.evaluate("performance.timeOrigin")
    page.get_by_text(pipe.name).wait_for()
    assert page.locator("#job-state").inner_text() == "running"
    done = page.locator("progress").evaluate("bar => [bar.value, bar.max]")
    assert 0 < done[0] < done[1]
    other = visit(own_shop, viewport=NARROW)
    other.open("/job?id=1")
    assert not other.has_sideways_scroll()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("The job was cancelled").wait_for()
    assert page.locator("#job-state").inner_text() == "cancelled"
    # The other page followed the job to its end, without being loaded again.
    other.page.get_by_text("The job was cancelled").wait_for()
    assert other.page.get_by_role("button", name="Cancel").count() == 0
    assert page.evaluate("performance.timeOrigin") != first
    pipe.unlink()
    pipe.write_bytes(b"other bytes")
    page.get_by_role("link", name="Run again").click()
    page.get_by_role("button", name="Start verify").click()
    page.get_by_role("alert").wait_for()
    assert page.locator("#job-state").inner_text() == "failed"
    assert page.get_by_role("heading", name="Problems").is_visible()
    page.get_by_role("alert").get_by_role("link", name="corrupt_data").click()
    page.wait_for_url("**/problem?kind=corrupt_data")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    # Two jobs of the server, and two runs of commands.
    assert page.locator("table[data-rows] tbody tr").count() == 4
    page.get_by_label("Status").select_option("cancelled")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("tbody tr").count() == 1
    assert [*visitor.problems, *other.problems] == []


@pytest.mark.spark
@pytest.mark.slow
def test_materialize_is_followed_on_the_pipeline_page_cancelled_and_run(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    for button in ("Cancel", ""):
        page.goto("/pipeline")
        page.get_by_role("link", name="Run materialize").click()
        page.get_by_role("button", name="Start materialize of documents").click()
        page.wait_for_url("**/job?id=*")
        page.goto("/pipeline")
        page.get_by_text("Working").or_(page.locator("progress")).first.wait_for()
        if button:
            page.get_by_role("button", name=button).click()
            page.get_by_text("The job was cancelled").wait_for()
    # The tables appear when the job has ended, without loading the page again.
    table = page.get_by_role("row", name=re.compile("^state "))
    table.wait_for(timeout=180_000)
    assert int(table.locator("td").nth(1).inner_text()) > 0
    assert page.locator(".live-job").count() == 0
    page.get_by_text("version 1,").first.click()
    page.get_by_role("row", name=re.compile(f"{DID} ")).wait_for()
    assert visitor.problems == []


def test_a_query_is_written_run_drawn_and_downloaded(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    visitor.open("/sql")
    page.get_by_label("Query").fill(QUERY)
    page.get_by_label("Query").press("Control+Enter")
    page.wait_for_url("**/sql?query=*")
    assert page.get_by_label("Query").input_value() == QUERY
    rows = page.get_by_role("table", name="Result").get_by_role("row")
    assert "orders" in rows.nth(1).inner_text() or rows.count() > 2
    assert page.get_by_role("img", name=re.compile("^bytes of .* rows, at most")).count() == 1
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    text = download.value.path().read_text()
    assert text.splitlines()[0] == "stream,records,bytes"
    assert len(text.splitlines()) == rows.count()
    page.go_back()
    page.get_by_role("link", name="Largest streams").click()
    page.wait_for_url("**/sql?query=select*bytes*")
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert visitor.problems == []


def test_a_running_query_is_cancelled(visit, shop):
    visitor = visit(shop)
    page = visitor.page
    visitor.open("/sql")
    endless = "with recursive c(n) as (select 1 union all select n + 1 from c) select max(n) from c"
    page.get_by_label("Query").fill(endless)
    # Clicks of the driver would wait for the page that does not come.
    cancelled = page.evaluate(
        """() => new Promise((resolve) => {
            const cancel = document.querySelector("[data-cancel]");
            document.querySelector(".sql button.primary").click();
            setTimeout(() => { const seen = !cancel.hidden; cancel.click(); resolve(seen); }, 100);
        })"""
    )
    assert cancelled
    assert page.url.endswith("/sql")
    page.get_by_label("Query").fill("select 41 + 1 as n")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**/sql?query=*")
    assert "42" in page.get_by_role("table", name="Result").inner_text()


def test_hostile_names_and_values_are_shown_as_text(visit, probes):
    did = "did:web:probe.example"
    space, document = urlencode({"did": did}), urlencode({"did": did, "id": PROBE})
    visitor = visit(probes)
    headers = {"Content-Type": "application/json"}
    assert probes.ask("PUT", f"/v1/stream/{quote(f'{PROBE}new')}", headers=headers).status == 201
    paths = (
        "/",
        "/documents",
        f"/space?{space}",
        f"/document?{document}&blame=1",
        f"/document?{document}&at=2&from=1",
        f"/restore?{document}&seq=1",
        f"/branches?{space}",
        f"/merge?{space}&source=other",
        f"/blobs?{space}",
        "/memories",
        "/memory?did=did:memory:probe",
        f"/memory?{urlencode({'did': 'did:memory:probe', 'q': PROBE, 'where': PROBE})}",
        "/item?did=did:memory:probe&id=users/ada//food",
        "/archive",
        "/streams",
        f"/streams?{urlencode({'prefix': PROBE})}",
        f"/stream?{urlencode({'name': probes.stream})}",
        f"/stream?{urlencode({'name': 'text<script>alert(4)<|script>'})}",
        f"/search?{urlencode({'prefix': PROBE})}",
        "/sessions",
        "/session?sid=probe",
        "/compare?sid=probe",
        "/fork?sid=probe",
        "/graphs",
        "/pipeline",
        f"/jobs?{urlencode({'kind': 'gc'})}",
        "/audit",
        f"/audit?{urlencode({'key': PROBE, 'operation': PROBE})}",
        "/app?app=probe",
        "/object?app=probe&id=1",
        "/sync",
    )
    for path in paths:
        assert visitor.open(path).status == 200, path
        body = visitor.page.locator("body")
        assert body.locator(f"{INJECTED}, script:not([src])").count() == 0, path
        assert "49" not in visitor.page.title()
    assert PROBE in visitor.page.locator("body").inner_html() or visitor.problems == []
    assert visitor.problems == []


def test_errors_show_hostile_text_as_text(visit, shop):
    visitor = visit(shop)
    for path in (
        f"/document?{SPACE}&{urlencode({'id': PROBE})}",
        f"/stream?{urlencode({'name': PROBE})}",
        f"/problem?{urlencode({'kind': PROBE})}",
        f"/streams?{urlencode({'at': PROBE})}",
        f"/{urlencode({PROBE: PROBE})}",
    ):
        response = visitor.open(path)
        assert 400 <= response.status < 500, path
        assert visitor.page.locator("img, script:not([src])").count() == 0, path
        # The browser itself reports the status of a failed page.
        assert [text for text in visitor.problems if "status of 4" not in text] == [], path


def test_pages_can_be_read_without_scripts(visit, shop):
    visitor = visit(shop, java_script_enabled=False, viewport=NARROW)
    for name, path in PAGES.items():
        assert visitor.open(path).status == 200, name
        page = visitor.page
        assert page.locator("h1").is_visible(), name
        hidden = ("Pause", "Copy")
        for label in hidden:
            assert page.get_by_role("button", name=label).count() == 0, name
    page.goto("/streams")
    page.get_by_label("Prefix").fill("sensors/00")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("tbody tr").count() == 10
    page.locator("details.time summary").click()
    page.get_by_label("Show the store as of").fill("2031-01-01T00:00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    assert "As of 2031-01-01" in page.locator("#past").inner_text()


def test_a_visitor_logs_in_with_a_key_and_out_again(visit, own_shop):

    with Access(own_shop.root) as access:
        secret = access.add(("read", "write", "admin"))[1]
    visitor = visit(own_shop)
    page = visitor.page
    page.goto("/stream?name=orders")
    page.get_by_role("textbox", name="Key").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    page.get_by_role("textbox", name="Key").fill(secret)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/stream?name=orders")
    page.get_by_role("button", name="Pause").wait_for()
    assert page.evaluate("document.cookie") == ""
    own_shop.stream(
        "POST",
        "orders",
        '{"id": 7}',
        Content_Type="application/json",
        Authorization=f"Bearer {secret}",
    )
    page.locator("#r120").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/stream?name=orders")
    assert page.locator("h1").inner_text() == "Log in with a key"


def test_key_is_created_on_page_shown_once_and_deleted(visit, own_shop):
    visitor = visit(own_shop)
    page = visitor.page
    page.goto("/keys")
    page.get_by_role("link", name="Create the first key").click()
    page.get_by_role("textbox", name="Label").fill("<b>operator</b>")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Create this key").click()
    page.get_by_role("heading", name="is created").wait_for()
    secret = page.locator(".secret").inner_text()
    assert secret.startswith("ff_")
    assert secret not in page.url
    page.get_by_role("link", name="All keys").click()
    page.get_by_role("textbox", name="Key").fill(secret)
    page.get_by_role("button", name="Log in").click()
    row = page.get_by_role("row").filter(has_text="<b>operator</b>")
    row.wait_for()
    assert row.get_by_role("link", name="Delete").count() == 0
    page.get_by_role("link", name="Create a key").click()
    for name in ("streams", "read read and follow"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("textbox", name="Prefix").fill("sensors/")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Create this key").click()
    other = page.locator(".secret").inner_text()
    bearer = {"Authorization": f"Bearer {other}"}
    assert own_shop.ask("HEAD", "/v1/stream/sensors/001", headers=bearer).status == 200
    assert own_shop.ask("HEAD", "/v1/stream/orders", headers=bearer).status == 403
    # The form is sent again: no second key, and no secret.
    page.reload()
    assert page.locator(".secret").count() == 0
    page.get_by_role("link", name="All keys").click()
    assert other not in page.content()
    assert page.locator("tbody tr").count() == 2
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete this key").click()
    page.wait_for_url("**/keys")
    assert page.locator("tbody tr").count() == 1
    assert own_shop.ask("HEAD", "/v1/stream/sensors/001", headers=bearer).status == 401
    assert [text for text in visitor.problems if "401" not in text] == []
