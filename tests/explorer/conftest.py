"""Servers with filled stores, and a real browser."""

from __future__ import annotations

import shutil

import pytest
from installed_browser import find_chromium
from shop_store import fill_payments, fill_probes, fill_shop, run_job
from sync_store import fill_sync

import fourfold
from server.served_streams import Served

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def filled_shop(tmp_path_factory):
    """The folder of a shop that no test opens: each server gets a copy of it."""
    root = tmp_path_factory.mktemp("filled") / "shop"
    fill_shop(root)
    return root


@pytest.fixture(scope="session")
def shop(tmp_path_factory, filled_shop):
    root = tmp_path_factory.mktemp("explorer") / "shop"
    shutil.copytree(filled_shop, root)
    server = Served(root)
    run_job(server, "snapshots")
    yield server
    server.kill()


@pytest.fixture
def own_shop(tmp_path, filled_shop):
    shutil.copytree(filled_shop, tmp_path / "shop")
    server = Served(tmp_path / "shop")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def payments(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer") / "payments"
    fill_payments(root)
    server = Served(root)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def exchanged(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer") / "exchanged"
    with fourfold.open(root) as store:
        fill_sync(store.graphs)
    server = Served(root)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def probes(tmp_path_factory):
    root = tmp_path_factory.mktemp("explorer") / "probes"
    stream = fill_probes(root)
    server = Served(root)
    server.stream = stream
    yield server
    server.kill()


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("explorer") / "empty")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def chromium():
    """A browser. Its driver runs an event loop in this thread until the module ends."""
    path = find_chromium()
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield browser
        browser.close()


class Visitor:
    """A page of a browser that records what goes wrong on it."""

    def __init__(self, browser, server, **options):
        self.address = f"http://127.0.0.1:{server.port}"
        self.context = browser.new_context(base_url=self.address, **options)
        self.page = self.context.new_page()
        self.problems = []
        self.requests = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message):
        if message.type in {"error", "warning"}:
            self.problems.append(message.text)

    def _refuse(self, dialog):
        self.problems.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def open(self, path):
        return self.page.goto(path, wait_until="load")

    def has_sideways_scroll(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )


@pytest.fixture
def visit(chromium):
    """Open pages of a server in a new context of the browser."""
    contexts = []

    def make(server, **options):
        visitor = Visitor(chromium, server, **options)
        contexts.append(visitor.context)
        return visitor

    yield make
    for context in contexts:
        context.close()
