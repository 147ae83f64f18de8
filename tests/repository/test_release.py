"""The workflows, the wheel, and the promises of the release: what a machine can check of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
import repository_files as repository
import yaml

ROOT = repository.ROOT
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WHEEL_BYTES_MAX = 3_000_000
DEPENDENCIES_MAX = 6
MODULES_MAX = 12
"""Budget: size of the wheel, dependencies without extras, modules that `import fourfold` loads."""


def load(path):
    return yaml.safe_load(path.read_text())


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_the_least_permissions_and_a_deadline(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        writes = {scope for scope, right in job["permissions"].items() if right == "write"}
        assert writes <= ({"id-token", "attestations"} if path.stem == "release" else set()), name
        assert job["timeout-minutes"] <= 90
    for step in steps(workflow):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        # Text that others choose, such as the name of a tag, must not become part of a script.
        assert "${{ github." not in step.get("run", "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_hash_with_their_version(path):
    used = re.findall(r"uses: (.+)", path.read_text())
    assert used
    for text in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", text), text
    assert len(set(used)) == len({text.partition("@")[0] for text in used})


def test_commands_of_the_workflows_exist():
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = "\n".join(step.get("run", "") for path in WORKFLOWS for step in steps(load(path)))
    suites = load(ROOT / ".github/workflows/ci.yml")["jobs"]["deep"]["strategy"]["matrix"]["suite"]
    assert {"check", "generate", "test", "install"} <= set(re.findall(r"make ([\w-]+)", scripts))
    assert set(re.findall(r"make ([\w-]+)", scripts)) | set(suites) <= targets
    assert (ROOT / "scripts" / "build_twice").stat().st_mode & 0o111


def test_matrix_has_every_supported_version_and_platform():
    matrix = load(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: "
    versions = [text.removeprefix(prefix) for text in PROJECT["classifiers"] if prefix in text]
    assert matrix["python"] == versions
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


def test_hooks_run_what_make_check_runs():
    (repository_hooks,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    make = (ROOT / "Makefile").read_text()
    for hook in repository_hooks["hooks"]:
        assert hook["entry"].replace(".venv/bin", "$(BIN)") in make


def test_issue_templates_are_valid_forms():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        if path.stem == "config":
            continue
        form = load(path)
        assert form.keys() == {"name", "description", "body"}
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids) > 0


def test_builds_are_equal_and_the_wheel_is_within_its_budget(tmp_path):
    command = [ROOT / "scripts" / "build_twice", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= WHEEL_BYTES_MAX
    names = zipfile.ZipFile(wheel).namelist()
    assert "fourfold/py.typed" in names
    assert "fourfold/server/migrations/0004_key_lifetimes.sql" in names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"fourfold"}


def test_core_has_few_dependencies_and_imports_few_modules():
    assert len(PROJECT["dependencies"]) <= DEPENDENCIES_MAX
    code = "import sys, fourfold; print(*[name for name in sys.modules if 'fourfold' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < len(done.stdout.split()) <= MODULES_MAX


def test_changelog_is_cut_by_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[-1] == "0.1.0"
    assert re.search(r"^This will be version \d+\.\d+\.\d+\.$", text, re.MULTILINE)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert len(set(headings)) == len(headings) > 0
