"""Daemon of Spark's Python workers that imports what tasks need before it forks them.

Spark's own daemon forks workers that have imported nothing, so each of them imports pyarrow and
Fourfold for its first task: half a second of CPU time for every task slot, and again after a minute
without work, when Spark ends idle workers. This one imports them once.

Spark's daemon avoids these imports because they start threads, which a forked process does not
have. Here none is running when it forks: Arrow's allocator is configured without its background
thread, and Spark limits the threads of numerical libraries to those of a task, one by default.

`session` selects this module as `spark.python.daemon.module` where tasks run on this machine. On a
cluster whose nodes have Fourfold installed, set that option to `fourfold.pipeline.daemon`.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Final

_TASKS: Final = "pyspark.worker"
_TASK_MODULES: Final = (
    # pyarrow imports it for the first array of Python objects.
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "fourfold.pipeline.source",
    "fourfold.pipeline.table_files",
    "fourfold.pipeline.documents.fold",
)
_PLANNERS: Final = tuple(
    f"pyspark.sql.worker.{name}"
    for name in (
        "create_data_source",
        "plan_data_source_read",
        "write_into_data_source",
        "commit_data_source_write",
        "python_streaming_sink_runner",
    )
)
"""Workers that use the format, each with a daemon of its own; others need nothing of Fourfold."""
_PLANNER_MODULES: Final = (
    "fourfold.pipeline.source",
    "fourfold.pipeline.cut",
    "fourfold.pipeline.documents.tables",
)
_ALLOCATOR: Final = "JE_ARROW_MALLOC_CONF"


def preload(worker: str) -> None:
    """Import the module of a worker and what it needs; one that is missing is left to the worker.

    Nothing is printed: Spark reads the standard output of a daemon.
    """
    modules = _TASK_MODULES if worker == _TASKS else _PLANNER_MODULES * (worker in _PLANNERS)
    configured = os.environ.get(_ALLOCATOR)
    os.environ.setdefault(_ALLOCATOR, "background_thread:false")
    try:
        with redirect_stdout(sys.stderr):
            for name in (worker, *modules):
                with suppress(ImportError):
                    import_module(name)
    finally:
        if configured is None:
            del os.environ[_ALLOCATOR]
    # Workers run the garbage collector after every task: these objects stay for ever.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve the JVM that started this process."""
    from pyspark.daemon import manager  # noqa: PLC0415 - an optional dependency

    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)
    manager()


if __name__ == "__main__":
    main()
