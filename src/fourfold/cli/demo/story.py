"""The story of the demo: a served shop, step by step, each checked and timed.

The address of the explorer was printed before. Spark starts in the background meanwhile, so that
its step, the last one, waits less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import fourfold
from fourfold.cli.demo import shop, support_agent
from fourfold.cli.demo.server import DemoServer
from fourfold.cli.demo.spark_step import SparkStep
from fourfold.cli.output import Output

_TITLE_WIDTH: Final = 62

Step = Callable[["Story"], "Shown"]
Shown = tuple[list[str], dict[str, object]]
"""Lines for people, facts for `--json`."""


class Story:
    """The demo in one folder: its server, which is starting, and what it prints."""

    def __init__(
        self,
        output: Output,
        root: Path,
        server: DemoServer,
        started: float,
        *,
        use_spark: bool,
    ) -> None:
        self.output = output
        self.root = root
        self._server = server
        self._spark = SparkStep(root) if use_spark else None
        self._started = started

    def tell(self, *, stay: bool) -> None:
        """Run every step; with `stay`, serve until Ctrl-C."""
        with ExitStack() as stack:
            if self._spark is not None:
                stack.enter_context(self._spark.running())
            url = self._server.url
            self._server.await_ready()
            self._say(f"          ready after {self._elapsed():.1f} s; open it and watch")
            store = stack.enter_context(fourfold.connect(url))
            shop.create_suppliers(store)
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
                self._wait()

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

    def _wait(self) -> None:
        self._say("The server runs until you press Ctrl-C.")
        assert self._server.process is not None
        try:
            self._server.process.wait()
        except KeyboardInterrupt:
            self._say()
            self._say("Stopped.")

    def _say(self, text: str = "") -> None:
        if not self.output.as_json:
            self.output.line(text)
            self.output.flush()

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
