"""The systemd unit and the Dockerfile: what they promise, and that their commands work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served_streams import Served, free_port

from fourfold.cli.serve import command as serve

DEPLOY = Path(__file__).parents[2] / "deploy"
EXPOSURE_MAX = 15
"""Ten times the score of `systemd-analyze security` that the unit may have."""


def unit_settings():
    """Return the settings of the unit; those that occur twice are joined."""
    settings = {}
    for line in (DEPLOY / "fourfold.service").read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            settings[name] = f"{settings[name]} {value}" if name in settings else value
    return settings


def instructions():
    """Return the instructions of the last stage of the Dockerfile, in order."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    return [tuple(line.split(maxsplit=1)) for line in lines[last:]]


def last_of(name):
    return [value for instruction, value in instructions() if instruction == name][-1]


def parse_serve(arguments):
    """Return the options of a `fourfold serve` command line."""
    assert arguments[0] == "serve"
    return serve.make_context("serve", list(arguments[1:])).params


def test_unit_serves_its_state_folder_on_loopback():
    settings = unit_settings()
    program, *arguments = settings["ExecStart"].split()
    assert program.endswith("/fourfold")
    options = parse_serve(arguments)
    assert str(options["root"]) == f"/var/lib/{settings['StateDirectory']}"
    assert options["host"] == "127.0.0.1"


def test_page_about_faults_names_the_restart_of_the_unit():
    page = (DEPLOY.parent / "docs" / "operating" / "faults.md").read_text()
    assert re.findall(r"`Restart=([\w-]+)`", page) == [unit_settings()["Restart"]]


def test_unit_drops_privileges():
    settings = unit_settings()
    assert settings["CapabilityBoundingSet"] == settings["AmbientCapabilities"] == ""
    assert settings["DynamicUser"] == settings["NoNewPrivileges"] == "yes"
    assert settings["ProtectSystem"] == "strict"
    assert settings["IPAddressDeny"] == "any"
    assert "ReadWritePaths" not in settings


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_unit_has_a_low_exposure_score():
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}"]
    done = subprocess.run(
        [*command, str(DEPLOY / "fourfold.service")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_image_runs_as_an_unprivileged_user():
    user, _, group = last_of("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    names = [name for name, _ in instructions()]
    # Nothing is installed or copied after the user changes, which would need a writable root.
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])
    assert "--require-hashes" in (DEPLOY / "Dockerfile").read_text()


def test_image_serves_its_volume():
    assert json.loads(last_of("ENTRYPOINT")) == ["fourfold"]
    options = parse_serve(json.loads(last_of("CMD")))
    assert str(options["root"]) == last_of("VOLUME")
    assert str(options["port"]) == last_of("EXPOSE")
    assert options["host"] == "0.0.0.0"


def run_health_check(port):
    """Run the health check of the image against a port of this machine; return its exit code."""
    _, _, command = last_of("HEALTHCHECK").partition("CMD ")
    program, *arguments = json.loads(command)
    assert program == "python"
    arguments = [part.replace(last_of("EXPOSE"), str(port)) for part in arguments]
    return subprocess.run([sys.executable, *arguments], capture_output=True, check=False).returncode


def test_health_check_tells_a_server_from_none(tmp_path):
    served = Served(tmp_path / "store")
    assert run_health_check(served.port) == 0
    served.kill()
    assert run_health_check(free_port()) != 0


def test_build_context_has_what_the_image_installs():
    root = DEPLOY.parent
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    included = {line[1:] for line in lines if line.startswith("!")}
    assert all((root / name).exists() for name in included)
    assert {"pyproject.toml", "src", "requirements/core.txt", "README.md", "LICENSE"} <= included
