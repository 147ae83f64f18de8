"""What every test shares: properties without a deadline, and temporary folders in memory.

In CI the examples of a property are always the same, so that a failure is due to the change and
not to luck. The search for new ones goes on wherever developers run the tests.

Temporary folders are in memory where there is room, because most tests sync often. None depends on
the disk for that: a crash kills processes and not the machine, and power cuts are simulated. Set
TMPDIR to put them elsewhere.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from support.properties import THOROUGH, examples

SPARK = "tests/pipeline/"
# Packages whose files take longest come first: then no worker is left with one of them at the end.
LONGEST_FIRST = ("explorer", "pipeline", "repository", "reliability", "archive", "server", "client")
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30

# Every JVM of Spark starts with these, also that of a command or an example. It is short-lived: it
# compiles quickly, trusts the classes of Spark, few partitions suffice, and only thorough runs
# compile plans.
SPARK_OPTIONS = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:MetaspaceSize=256m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Dspark.sql.shuffle.partitions=2",
]
if not THOROUGH:
    SPARK_OPTIONS += [
        "-Dspark.sql.codegen.wholeStage=false",
        "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    ]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SPARK_OPTIONS))
os.environ["FOURFOLD_SPARK_TRAINING"] = "off"

settings.register_profile("patient", deadline=None, max_examples=examples(100))
settings.register_profile("repeatable", settings.get_profile("patient"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "patient")


def has_room(folder: Path) -> bool:
    return (
        folder.is_dir()
        and os.access(folder, os.W_OK | os.X_OK)
        and shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN
    )


if has_room(MEMORY):
    # For child processes; pytest itself has looked at the environment before.
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = os.environ["TMPDIR"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    tests = Path(__file__).parent

    def order(item):
        package = item.path.relative_to(tests).parts[0]
        return LONGEST_FIRST.index(package) if package in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=order)


NICENESS = os.getpriority(os.PRIO_PROCESS, 0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Fail a test that lowered the priority of this process: all later ones would starve."""
    assert os.getpriority(os.PRIO_PROCESS, 0) == NICENESS


# What is imported and collected stays until the end: looking for garbage in it takes a quarter of
# the time of a worker before its first test.
gc.disable()


def pytest_collection_finish():
    """Leave what was collected out of garbage collections."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the files that need Spark to one worker, so that one JVM starts and warms up."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where xdist runs

    @cache
    def needs_spark(file):
        return file.startswith(SPARK) and "mark.spark" in (config.rootpath / file).read_text()

    class SparkOnOneWorker(LoadFileScheduling):
        def _assign_work_unit(self, node):
            first = node is self.nodes[0]
            fitting = (file for file in self.workqueue if needs_spark(file) == first)
            # With nothing of its own left, a worker helps with the rest.
            self.workqueue.move_to_end(next(fitting, next(iter(self.workqueue))), last=False)
            super()._assign_work_unit(node)

    return SparkOnOneWorker(config, log)
