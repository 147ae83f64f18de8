"""Pages that change by themselves, and what they offer on phones, in the past and twice."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

import pytest
from shop_store import DID, ORDER
from test_job_progress import running_job

from fourfold.explorer.explorer import Explorer
from fourfold.explorer.jobs import job_row
from fourfold.wire.store import JobProgress
from server.served_streams import Served

SPACE = urlencode({"did": DID})
HTML = {"accept": "text/html"}


@pytest.fixture
def fresh(tmp_path):
    server = Served(tmp_path / "fresh")
    yield server
    server.kill()


@pytest.mark.parametrize("path", ["/streams", "/"])
def test_an_empty_page_shows_the_first_entry_by_itself(visit, fresh, path):
    visitor = visit(fresh)
    visitor.open(path)
    visitor.page.get_by_text("This page is listening").wait_for()
    fresh.stream("PUT", "orders", content_type="application/json")
    fresh.stream("POST", "orders", b"[1]", content_type="application/json")
    visitor.page.get_by_role("link", name="orders").first.wait_for()
    assert visitor.page.get_by_text("This page is listening").count() == 0
    assert visitor.problems == []


def test_a_page_of_the_past_does_not_listen(empty):
    shown = empty.ask("GET", "/streams?at=2026-01-01", headers=HTML).text.decode()
    assert "data-listens" not in shown


def add_outer_objects(store):
    """Give the ticket and the orders of a customer neighbours of their own."""
    graph = store.graphs.open("crm")
    message, product = (graph.register_type("parent", name) for name in ("message", "product"))
    contains = graph.register_type("edge", "contains")
    for kind, source, target in ((message, None, 4), (product, 3, None)):
        [made] = graph.insert("parent", [{"type_id": kind, "owner_identity": 1}])
        ends = {"src_parent_id": source or made, "dst_parent_id": target or made}
        graph.insert("edge", [{"type_id": contains, "owner_identity": 1, **ends}])


@pytest.mark.parametrize("width", [1200, 1280, 1440])
def test_a_neighbourhood_of_five_columns_is_not_cut(visit, own_shop, width):
    objects = json.loads(own_shop.ask("GET", "/object.json?app=crm&id=1").text)["graph"]["nodes"]
    assert {node["id"] for node in objects} >= {1, 3, 4}
    own_shop.stop_and(add_outer_objects)
    page = visit(own_shop, viewport={"width": width, "height": 800}).page
    page.goto("/object?app=crm&id=1")
    drawing = page.locator("svg.neighbourhood.wide-5")
    box = drawing.evaluate(
        "drawing => [drawing.parentElement.scrollWidth, drawing.parentElement.clientWidth]"
    )
    assert box[0] <= box[1]
    assert drawing.locator(".node").count() == len(objects) + 2


def test_names_are_searched_on_a_phone(visit, shop):
    visitor = visit(shop, viewport={"width": 390, "height": 844})
    page = visitor.page
    page.goto("/streams")
    page.get_by_role("link", name="Search names").click()
    page.wait_for_url("**/search")
    page.get_by_label("Name", exact=True).fill("ord")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="orders").wait_for()
    page.goto("/streams")
    page.keyboard.press("/")
    page.wait_for_url("**/search")
    assert visitor.problems == []


def test_a_merge_is_not_offered_in_the_past(own_shop):
    address = f"/merge?{SPACE}&source=discount"
    now = own_shop.ask("GET", address, headers=HTML).text.decode()
    assert "Merge into main as seq" in now
    past = own_shop.ask("GET", f"{address}&at=2999-01-01T00:00", headers=HTML).text.decode()
    assert "Merge into main as seq" not in past
    assert "return to now to merge" in past


def send(server, path, **fields):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return server.ask("POST", path, urlencode(fields), headers)


def test_form_sent_twice_creates_one_branch_and_one_fork(own_shop):
    page = own_shop.ask("GET", f"/document?{urlencode({'did': DID, 'id': ORDER})}", headers=HTML)
    [token] = re.findall(r'name="token" value="(\w+)"', page.text.decode())
    branch = {"did": DID, "id": ORDER, "name": "twice", "seq": 4}
    fork = {"sid": "support/1042", "name": "support/twice", "event": 3}
    for path, fields in (("/branch", branch), ("/fork", fork)):
        for _ in range(2):
            assert send(own_shop, path, token=token, **fields).status == 303
        assert send(own_shop, path, token="other", **fields).status == 409
        assert send(own_shop, path, **fields).status == 400


def test_home_shows_the_jobs_that_run():
    job = job_row(running_job(JobProgress("state", 62, 100)), now_ms=31_000)
    environment = Explorer(None, "shop")._templates
    page = '{% import "components.html" as ui with context %}{% include "home_jobs.html" %}'
    context = {"link": FakeLinks(), "root": "", "at": "", "age": str}
    shown = environment.from_string(page).render(running=[job], jobs=[], **context)
    assert "materialize" in shown
    assert "62 %" in shown
    assert 'data-events="/v1/jobs/7/events"' in shown
    assert "Running" not in environment.from_string(page).render(running=[], jobs=[], **context)


class FakeLinks:
    """Links without parameters."""

    def __call__(self, path, **_query):
        return path

    def api(self, path):
        return path
