"""Type checkers see the types of an installed Fourfold."""

from __future__ import annotations

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


def check(python, folder, program):
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    return subprocess.run(
        [*command, "--cache-dir", str(folder / "cache"), "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_wheel_contains_the_marker_of_typed_packages(installed):
    [marker] = installed.parents[1].glob("lib/*/site-packages/fourfold/py.typed")
    assert marker.is_file()


def test_types_of_the_public_calls_are_inferred(installed, tmp_path):
    checked = check(installed, tmp_path, PROGRAM.read_text())
    assert checked.returncode == 0, checked.stdout


def test_a_wrong_type_is_found(installed, tmp_path):
    program = PROGRAM.read_text().replace("space.seq(), int", "space.seq(), str")
    checked = check(installed, tmp_path, program)
    assert 'Expression is of type "int", not "str"' in checked.stdout
