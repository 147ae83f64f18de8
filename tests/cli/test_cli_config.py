"""Claims about `fourfold config` and `fourfold version`."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

from fourfold import settings
from fourfold._version import __version__

ROOT = Path(__file__).parents[2]


def rows(done):
    return {row["name"]: row for row in done.document["settings"]}


def test_every_setting_is_listed_with_its_value_source_and_default(call):
    plain = call("config")
    assert plain.code == 0
    for name, setting in settings.SETTINGS.items():
        line = next(line for line in plain.out.splitlines() if line.startswith(name))
        assert str(setting.default) in line
        assert "default" in line
        assert setting.description in line


def test_each_value_names_the_layer_that_won(call):
    (call.folder / "fourfold.toml").write_text("format = 1\n[kernel]\nreaders_max = 2\n")
    done = call(
        "config",
        call.folder,
        "--set",
        "objects.retries_max=0",
        "--json",
        FOURFOLD_STREAMS_SYNCHRONOUS="NORMAL",
    )
    assert done.document["file"] == str(call.folder / "fourfold.toml")
    found = rows(done)
    assert found["kernel.readers_max"]["layer"] == "file"
    assert found["kernel.readers_max"]["source"].endswith("fourfold.toml: kernel.readers_max")
    assert found["streams.synchronous"]["source"] == "FOURFOLD_STREAMS_SYNCHRONOUS"
    assert found["objects.retries_max"] == {
        "name": "objects.retries_max",
        "value": 0,
        "layer": "flag",
        "source": "--set objects.retries_max",
        "default": settings.SETTINGS["objects.retries_max"].default,
        "unit": "retries",
        "description": settings.SETTINGS["objects.retries_max"].description,
    }


def test_the_root_may_come_from_the_environment(call):
    (call.folder / "fourfold.toml").write_text("format = 1\n[kernel]\nreaders_max = 2\n")
    done = call("config", "--json", FOURFOLD_ROOT=str(call.folder))
    assert rows(done)["kernel.readers_max"]["value"] == 2


def test_misspelt_variable_stops_command_and_names_right_one(call):
    done = call("config", FOURFOLD_KERNEL_READER_MAX="2")
    assert done.code == 2
    assert "FOURFOLD_KERNEL_READERS_MAX" in done.err


def test_a_store_from_the_future_is_refused(call):
    (call.folder / "fourfold.toml").write_text("format = 99\n")
    done = call("config", call.folder, "--json")
    assert done.code == 7
    assert done.error["kind"] == "future_format"


def test_init_prints_fresh_file_or_writes_it_into_root(call):
    printed = call("config", "--init")
    assert printed.out == settings.fresh_file()
    target = call.folder / "new" / "store"
    written = call("config", target, "--init")
    assert written.code == 0
    path = target / "fourfold.toml"
    assert path.read_text() == settings.fresh_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert [entry.name for entry in target.iterdir()] == ["fourfold.toml"]
    assert call("config", target).code == 0


def test_init_never_replaces_a_file(call):
    path = call.folder / "fourfold.toml"
    path.write_text("format = 1\n# mine\n")
    done = call("config", call.folder, "--init", "--json")
    assert done.code == 4
    assert done.error["kind"] == "already_exists"
    assert path.read_text().endswith("# mine\n")
    assert [entry.name for entry in call.folder.iterdir()] == ["fourfold.toml"]


def test_init_as_json_says_what_it_wrote(call):
    assert call("config", "--init", "--json").document == {
        "file": None,
        "text": settings.fresh_file(),
    }


def test_init_with_values_is_refused(call):
    assert call("config", "--init", "--set", "kernel.readers_max=2").code == 2


def test_the_version_names_every_part_and_extra(call):
    document = call("version", "--json").document
    assert document["fourfold"] == __version__
    assert set(document) == {"fourfold", "python", "sqlite", "platform", "extras"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for tools in ("dev", "docs"):
        del extras[tools]
    assert {name: set(packages) for name, packages in document["extras"].items()} == {
        name: {re.match(r"[\w-]+", package).group() for package in packages}
        for name, packages in extras.items()
    }
    plain = call("version").out
    for part in ("fourfold", "python", "sqlite", "platform", "extra spark"):
        assert f"\n{part} " in plain
