"""Make the screenshots of docs/explorer.md: `python docs/screenshots.py [NAME...]`.

Needs Chromium and the package playwright. Fills a store, serves it, and takes a picture of some
pages: of all, or of those that are named, such as `merge object`. Spark runs only for pages that
show what it did.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from example_store import DID, ORDER, fill
from playwright.sync_api import sync_playwright

import fourfold
from fourfold.cli.open import free_port
from fourfold.server.auth import Access

IMAGES = Path(__file__).parent / "images"
SPACE = urlencode({"did": DID})
DOCUMENT = urlencode({"did": DID, "id": ORDER})
QUERY = """select strftime('%H:%M', time) as minute, count(*) as orders,
       sum(length(text)) as bytes
from streams_records
where stream = 'orders'
group by 1 order by 1 desc limit 12"""
PICTURES = {
    "explorer-home": ("/", "light"),
    "explorer-document": (f"/document?{DOCUMENT}&at=19&from=10", "dark"),
    "explorer-merge": (f"/merge?{SPACE}&source=discount", "light"),
    "explorer-stream": ("/stream?name=orders", "light"),
    "explorer-session": ("/session?sid=support/refund-1042", "light"),
    "explorer-object": ("/object?app=crm&id=1&from=20", "dark"),
    "explorer-memory": ("/memory?did=did:memory:assistant", "light"),
    "explorer-archive": ("/archive", "light"),
    "explorer-sql": (f"/sql?{urlencode({'query': QUERY})}", "light"),
    "explorer-jobs": ("/job?id=1", "light"),
    "explorer-pipeline": ("/pipeline", "dark"),
    "explorer-keys": ("/newkey?documents=1&read=1&query=1&prefix=did:web:shop", "light"),
}
WITH_SPARK = {"explorer-home", "explorer-pipeline"}
WIDTH, HEIGHT = 1200, 780


def main(*names: str) -> None:
    chosen = [f"explorer-{name}" for name in names] or list(PICTURES)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "shop"
        fill(root)
        with Access(root) as access:
            access.add(("read", "write", "admin", "query"), label="operator")
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port), "--open"],
            stdout=subprocess.DEVNULL,
            env=os.environ,
        )
        try:
            _wait(port)
            _run_jobs(f"http://127.0.0.1:{port}", with_spark=not WITH_SPARK.isdisjoint(chosen))
            _take(f"http://127.0.0.1:{port}", chosen)
        finally:
            server.terminate()
            server.wait()


def _wait(port: int) -> None:
    for _ in range(200):
        try:
            urlopen(f"http://127.0.0.1:{port}/health").close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def _run_jobs(address: str, *, with_spark: bool) -> None:
    with fourfold.connect(address) as store:
        store.jobs.run("verify")
        for model in ("documents", "sessions") if with_spark else ():
            store.jobs.run("materialize", model=model)


def _take(address: str, names: list[str]) -> None:
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        for name in names:
            path, scheme = PICTURES[name]
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                color_scheme=scheme,  # type: ignore[arg-type]
            )
            page.goto(address + path)
            page.wait_for_timeout(300)
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
