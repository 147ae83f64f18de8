"""Pages that need another store than the shop: with keys, points or the demo, and error pages."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from installed_browser import find_chromium
from test_browser import NARROW, PAGES, WIDE, check_landmarks_and_names

import fourfold
from fourfold.cli.demo import shop as demo
from fourfold.explorer import explorer
from fourfold.server.auth import Access
from server.served_streams import Served

OTHERS = {"/deletekey"}
"""Pages that this module opens, because the shop of the tests does not have them."""


def check_page(visitor, path, status=200):
    """Open a page wide and narrow, light and dark; nothing may be wrong with it."""
    page = visitor.page
    assert visitor.open(path).status == status, path
    for viewport in (NARROW, WIDE):
        for scheme in ("light", "dark"):
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme=scheme)
            assert not visitor.has_sideways_scroll(), (path, viewport, scheme)
    check_landmarks_and_names(page, path)
    # The browser itself reports the status of a failed page.
    assert [text for text in visitor.problems if f"status of {status}" not in text] == [], path
    visitor.problems.clear()


def test_every_page_is_opened_in_a_browser():
    pages = {page.path for module in explorer._MODULES for page in module.PAGES}
    assert pages == {urlsplit(path).path for path in PAGES.values()} | OTHERS


def test_error_pages_have_no_problem(visit, shop):
    visitor = visit(shop)
    check_page(visitor, "/stream?name=unknown", 404)
    assert "unknown" in visitor.page.locator("h1").inner_text()
    check_page(visitor, "/streams?at=noon", 400)


def test_an_archive_with_points_has_no_problem(visit, own_shop):
    visitor = visit(own_shop)
    with fourfold.connect(visitor.address) as store:
        store.jobs.run("publish")
    check_page(visitor, "/archive")
    assert visitor.page.get_by_role("table", name="Restore points").get_by_role("row").count() > 1


def test_login_and_pages_of_keys_have_no_problem(visit, own_shop):
    with Access(own_shop.root) as access:
        secret = access.add(("read", "write", "admin"))[1]
        access.add(("read",), label="reader")
    visitor = visit(own_shop)
    check_page(visitor, "/login")
    visitor.page.get_by_role("textbox", name="Key").fill(secret)
    visitor.page.get_by_role("button", name="Log in").click()
    visitor.page.wait_for_url(visitor.address + "/")
    check_page(visitor, "/keys")
    link = visitor.page.get_by_role("link", name="Delete").first.get_attribute("href")
    check_page(visitor, link)


@pytest.fixture(scope="module")
def demo_store(tmp_path_factory):
    """A server on the store that `fourfold demo` leaves."""
    root = tmp_path_factory.mktemp("demo_store") / "mine"
    command = [sys.executable, "-m", "fourfold", "demo", str(root), "--no-spark", "--json"]
    subprocess.run(command, check=True, capture_output=True)
    server = Served(root)
    yield server
    server.kill()


def test_the_pages_that_the_demo_names_have_no_problem(visit, demo_store):
    visitor = visit(demo_store)
    for path, _ in demo.PAGES:
        check_page(visitor, f"/{path}")
    for path in ("/", "/documents", "/streams", "/graphs", "/sessions", "/sql", "/archive"):
        check_page(visitor, path)


def test_a_missing_browser_fails_in_ci_and_is_skipped_elsewhere(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        find_chromium()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        find_chromium()
