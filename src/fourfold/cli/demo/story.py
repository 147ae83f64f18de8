"""The story of the demo: a served shop, step by step, each checked and timed.

The address of the explorer is printed first. Spark starts in the background meanwhile, so that its
step, the last one, waits less.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError

import fourfold
from fourfold.cli.demo import shop, support_agent
from fourfold.cli.demo.spark_step import SparkStep
from fourfold.cli.open import HOST, free_port
from fourfold.cli.output import Output
from fourfold.errors import StorageError

START_S: Final = 30.0
POLL_S: Final = 0.05
STOP_S: Final = 10.0
_TITLE_WIDTH: Final = 62

Step = Callable[["Story"], "Shown"]
Shown = tuple[list[str], dict[str, object]]
"""Lines for people, facts for `--json`."""


class Story:
    """The demo in one folder: its server, its store over HTTP, and what it prints."""

    def __init__(self, output: Output, root: Path, *, use_spark: bool) -> None:
        self.output = output
        self.root = root
        self._spark = SparkStep(root) if use_spark else None
        self._started = time.monotonic()

    def tell(self, *, stay: bool) -> None:
        """Run every step; with `stay`, serve until Ctrl-C."""
        with ExitStack() as stack:
            if self._spark is not None:
                stack.enter_context(self._spark.running())
            shop.create_suppliers(self.root)
            server, url = stack.enter_context(_serve(self.root))
            self._say(f"Explorer  {url}")
            self._say(f"Store     {self.root}")
            self._say(f"          ready after {self._elapsed():.1f} s; open it and watch")
            store = stack.enter_context(fourfold.connect(url))
            steps = [
                self._show(1, "Orders are edited, branched and merged", lambda: shop.sell(store)),
                self._show(
                    2, "A stream is followed while it is written", lambda: shop.follow(store)
                ),
                self._show(
                    3,
                    "An agent is killed in the middle of its turn, and resumed",
                    lambda: support_agent.kill_and_resume(store, url),
                ),
            ]
            if self._spark is not None:
                title = "Spark reads the whole history of all four models"
                steps.append(self._show(4, title, self._spark.run))
            self._end(url, steps)
            if stay:
                self._wait(server)

    def _show(self, number: int, title: str, step: Callable[[], Shown]) -> dict[str, object]:
        begun = time.monotonic()
        lines, facts = step()
        seconds = time.monotonic() - begun
        self._say()
        self._say(f"{f'{number}. {title}':<{_TITLE_WIDTH}} {seconds:5.1f} s")
        for line in lines:
            self._say(f"   {line}")
        return {"step": title, "seconds": round(seconds, 3), **facts}

    def _end(self, url: str, steps: list[dict[str, object]]) -> None:
        elapsed = self._elapsed()
        if self.output.as_json:
            document = {"root": str(self.root), "url": url, "elapsed_s": round(elapsed, 3)}
            self.output.document({**document, "steps": steps})
            return
        self._say()
        self._say(f"All as expected, after {elapsed:.1f} s. What to look at:")
        for path, text in shop.PAGES:
            self._say(f"   {url}{path}")
            self._say(f"      {text}")
        self._say()
        self._say(f"The store stays in {self.root}; `fourfold open {self.root}` shows it again.")

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        self._say("The server runs until you press Ctrl-C.")
        try:
            server.wait()
        except KeyboardInterrupt:
            self._say()
            self._say("Stopped.")

    def _say(self, text: str = "") -> None:
        if not self.output.as_json:
            self.output.line(text)
            self.output.flush()

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


@contextmanager
def _serve(root: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Serve the store in a process of its own; yields it and its address once it responds."""
    port = free_port()
    log = root.with_name(f"{root.name}-server.log")
    command = [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port)]
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        url = f"http://{HOST}:{port}/"
        _wait_until_ready(server, url, log)
        yield server, url
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.unlink(missing_ok=True)


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}readyz").close()  # noqa: S310 - the server just started
        except URLError:
            time.sleep(POLL_S)
        else:
            return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise StorageError(
        f"the server of the demo did not start: {lines[-1] if lines else 'no output'}",
        hint=f"Start it yourself: `fourfold serve {log.parent}`.",
    )
