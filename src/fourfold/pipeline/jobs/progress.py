"""How far Spark is, told to whoever draws the bar.

Nothing is drawn here: the command line gives an `advance(label, done, total)` that draws on a
terminal and does nothing elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fourfold import limits

Advance = Callable[[str, int, int], None]
"""Called with what is being worked on, steps done, and steps in all."""


def silent(_label: str, _done: int, _total: int) -> None:
    """The progress that nobody watches."""


@contextmanager
def following(spark: Any, label: str, advance: Advance) -> Iterator[None]:
    """Report the tasks of Spark's running stages while the block runs.

    A session of Spark Connect has no status to ask for; then only the label is shown.
    """
    if advance is silent:
        yield
        return
    advance(label, 0, 0)
    tracker = _tracker(spark)
    if tracker is None:
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(tracker, label, advance, over), name="fourfold-progress", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _tracker(spark: Any) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a Connect session refuses in its own way; a bar is optional
        return None


def _watch(tracker: Any, label: str, advance: Advance, over: threading.Event) -> None:
    while not over.wait(limits.SPARK_PROGRESS_S):
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                total += info.numTasks
        if total:
            advance(label, done, total)
