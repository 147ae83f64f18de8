"""Make the screenshots of docs/explorer.md: `python docs/screenshots.py`.

Needs Chromium and the package playwright. Fills a store, serves it, and takes a picture of some
pages.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

import fourfold
from fourfold.cli.open import free_port

IMAGES = Path(__file__).parent / "images"
DID = "did:web:shop.example"
ORDER = "order:1042"
SPACE = urlencode({"did": DID})
DOCUMENT = urlencode({"did": DID, "id": ORDER})
PICTURES = {
    "explorer-home": ("/", "light"),
    "explorer-document": (f"/document?{DOCUMENT}&at=19&from=4", "dark"),
    "explorer-merge": (f"/merge?{SPACE}&source=discount", "light"),
}
WIDTH, HEIGHT = 1120, 700


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "shop"
        fill(root)
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port)],
            stdout=subprocess.DEVNULL,
            env=os.environ,
        )
        try:
            _wait(port)
            _take(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()


def fill(root: Path) -> None:
    """Write a shop: an order with a history, a branch with a conflict, and streams."""
    chance = random.Random(7)  # noqa: S311 - the same pictures every time
    with fourfold.open(root) as store:
        space = store.space(DID)
        order = {
            "customer": {"name": "Ada Lovelace", "city": "London"},
            "items": [{"sku": "tea-100", "qty": 4, "price": 4.5}],
            "status": "draft",
            "total": 18.0,
            "notes": "Ring twice.",
        }
        space.set(ORDER, order)
        space.set("sku:tea-100", {"name": "Green tea", "price": 4.5})
        space.set("sku:cup-7", {"name": "Cup", "price": 12.0})
        for quantity in range(5, 15):
            total = 4.5 * quantity
            space.patch(ORDER, [_replace("/items/0/qty", quantity), _replace("/total", total)])
        cup = {"sku": "cup-7", "qty": 1, "price": 12.0}
        space.patch(ORDER, [{"op": "append", "path": "/items", "values": [cup]}])
        space.patch(ORDER, [_replace("/total", 75.0), {"op": "remove", "path": "/notes"}])
        space.patch(ORDER, [_replace("/status", "paid"), _replace("/customer/city", "Paris")])
        space.branches.create("import-fix")
        space.patch("sku:cup-7", [_replace("/name", "Tall cup")], branch="import-fix")
        space.patch(ORDER, [_replace("/status", "packed")])
        space.branches.merge("import-fix")
        space.branches.create("discount")
        coupon = {"op": "add", "path": "/coupon", "value": "TEA10"}
        space.patch(ORDER, [_replace("/total", 67.5), coupon], branch="discount")
        space.patch("sku:tea-100", [_replace("/price", 4.05)], branch="discount")
        space.patch(ORDER, [_replace("/total", 70.0), _replace("/status", "shipped")])
        orders = store.streams.create("orders", content_type="application/json")
        visits = store.streams.create("visits", content_type="application/json")
        for number in range(400):
            states = ("placed", "paid", "shipped")
            total = round(chance.uniform(4, 130), 2)
            orders.append({"id": 1000 + number, "total": total, "status": chance.choice(states)})
            if chance.random() < 0.2:
                visits.append({"page": f"/tea/{number % 9}"})
                time.sleep(chance.random() / 60)


def _replace(path: str, value: object) -> dict[str, object]:
    return {"op": "replace", "path": path, "value": value}


def _wait(port: int) -> None:
    for _ in range(200):
        try:
            urlopen(f"http://127.0.0.1:{port}/health").close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def _take(address: str) -> None:
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (path, scheme) in PICTURES.items():
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
    main()
