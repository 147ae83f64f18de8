"""Type checkers see the types of an installed Fourfold."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("typing")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / name / "site-packages"
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Everything that Fourfold depends on comes from the environment of the tests.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run_mypy(python):
    return ["mypy", "--strict", "--cache-dir", "cache", "--python-executable", str(python)]


def run_pyright(python):
    return ["pyright", "--pythonpath", str(python)]


@pytest.fixture(scope="module", params=[run_mypy, run_pyright], ids=["mypy", "pyright"])
def output(request, installed, tmp_path_factory):
    """What a checker prints about the program, and about a copy that expects a wrong type."""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    program = PROGRAM.read_text()
    wrong = program.replace("space.seq(), int", "space.seq(), str")
    assert wrong != program
    (folder / "right.py").write_text(program)
    (folder / "wrong.py").write_text(wrong)
    command = [sys.executable, "-m", *request.param(installed), "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_wheel_contains_the_marker_of_typed_packages(installed):
    [marker] = installed.parents[1].glob("lib/*/site-packages/fourfold/py.typed")
    assert marker.is_file()


def test_wheel_contains_no_helper_of_our_own_tests(installed):
    [testing] = installed.parents[1].glob("lib/*/site-packages/fourfold/testing")
    modules = {path.stem for path in testing.glob("*.py")}
    assert modules.isdisjoint(path.stem for path in (ROOT / "tests/support").glob("[!_]*.py"))


def test_checkers_infer_the_types_of_public_calls(output):
    assert "right.py:" not in output, output


def test_checkers_find_a_wrong_type(output):
    [error] = [line for line in output.splitlines() if "wrong.py:" in line]
    assert re.search(r'"int".* "str"|"str".* "int"', error)
