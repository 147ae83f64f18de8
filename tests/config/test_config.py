"""Settings: order of the layers, sources, and rejection of unknown or invalid values."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold import settings as settings_module
from fourfold.errors import FutureFormat, InvalidConfig
from fourfold.settings import CONFIG_BYTES_MAX


def write(root, text):
    (root / settings_module.FILE_NAME).write_text(text, encoding="utf-8")
    return root


def load(root=None, environ=None, **layers):
    return settings_module.load(root, environ=environ or {}, **layers)


def test_values_are_defaults_without_any_layer():
    settings = load()
    assert settings.kernel.readers_max == limits.READERS_MAX
    assert settings.documents.page_size == 32768
    assert settings.streams.synchronous == "FULL"
    assert settings.sessions.synchronous == "FULL"
    for row in settings.explain():
        assert row.value == row.default
        assert (row.layer, row.source) == ("default", "default")


def test_later_layer_overrides_earlier_one_and_is_the_source(tmp_path):
    name, variable = "kernel.readers_max", "FOURFOLD_KERNEL_READERS_MAX"
    write(tmp_path, "format = 1\n[kernel]\nreaders_max = 2\n")

    from_file = load(tmp_path)
    assert from_file[name] == 2
    assert from_file.source(name).layer == "file"
    assert str(from_file.source(name)) == f"{tmp_path / 'fourfold.toml'}: kernel.readers_max"

    from_environment = load(tmp_path, {variable: "3"})
    assert from_environment[name] == 3
    assert str(from_environment.source(name)) == variable

    from_argument = load(tmp_path, {variable: "3"}, arguments={name: 4})
    assert from_argument[name] == 4
    assert from_argument.source(name).layer == "argument"

    from_flag = load(tmp_path, {variable: "3"}, arguments={name: 4}, flags={name: "5"})
    assert from_flag[name] == 5
    assert str(from_flag.source(name)) == "--set kernel.readers_max"


def test_folder_without_file_has_defaults(tmp_path):
    assert load(tmp_path) == load()


def test_attribute_and_item_access_agree():
    settings = load(arguments={"objects.retries_max": 0})
    for name in settings_module.SETTINGS:
        section, _, key = name.partition(".")
        assert settings[name] == getattr(getattr(settings, section), key)


def test_unknown_name_raises_and_hints_at_nearest_setting():
    with pytest.raises(InvalidConfig, match=r"kernel\.reader_max") as caught:
        load()["kernel.reader_max"]
    assert "kernel.readers_max" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("format = 1\n[kernel]\nreader_max = 2", "'kernel.reader_max'", "kernel.readers_max"),
        ("format = 1\n[kernal]\nreaders_max = 2", "'kernal'", "kernel"),
        ("format = 1\nreaders_max = 2", "'readers_max'", "kernel.readers_max"),
        ("format = 1\nkernel = 2", "'kernel'", "sections"),
        ("[kernel]\nreaders_max = 2", "no format", "format = 1"),
        ("format = 0", "format = 0", "format = 1"),
        ("format = true", "format = True", "format = 1"),
        ("format = '1'", "format = '1'", "format = 1"),
        ("format = ", "not valid TOML", "config --init"),
        ("format = 1\nformat = 1", "not valid TOML", "config --init"),
    ],
)
def test_invalid_file_is_rejected_by_name(tmp_path, text, message, hint):
    with pytest.raises(InvalidConfig) as caught:
        load(write(tmp_path, text))
    assert message in caught.value.message
    assert settings_module.FILE_NAME in caught.value.message
    assert hint in caught.value.hint


def test_file_that_is_not_text_is_rejected(tmp_path):
    (tmp_path / settings_module.FILE_NAME).write_bytes(b"format = 1\n\xff\xfe")
    with pytest.raises(InvalidConfig, match="not valid TOML"):
        load(tmp_path)


def test_file_above_size_limit_is_rejected(tmp_path):
    write(tmp_path, "format = 1\n" + "#" * CONFIG_BYTES_MAX)
    with pytest.raises(InvalidConfig, match="larger than"):
        load(tmp_path)


def test_unreadable_file_is_rejected(tmp_path):
    (tmp_path / settings_module.FILE_NAME).mkdir()
    with pytest.raises(InvalidConfig, match="cannot read"):
        load(tmp_path)


def test_newer_format_is_rejected_before_keys_are_checked(tmp_path):
    write(tmp_path, f"format = {settings_module.FORMAT + 1}\n[unknown]\nkey = 1")
    with pytest.raises(FutureFormat, match=f"format = {settings_module.FORMAT + 1}"):
        load(tmp_path)


def test_unknown_variable_raises_and_hints_at_nearest_one():
    with pytest.raises(InvalidConfig, match="FOURFOLD_KERNEL_READER_MAX") as caught:
        load(environ={"FOURFOLD_KERNEL_READER_MAX": "2"})
    assert "FOURFOLD_KERNEL_READERS_MAX" in caught.value.hint


def test_variables_that_are_not_settings_are_ignored():
    environ = dict.fromkeys(settings_module.NOT_SETTINGS, "x") | {"FOUR": "x", "HOME": "x"}
    assert load(environ=environ) == load()


def test_format_of_the_archive_is_2_or_left_out(tmp_path):
    layers = ({"root": write(tmp_path, "format = 1\n[archive]\nformat = 2\n")},)
    layers += ({"environ": {"FOURFOLD_ARCHIVE_FORMAT": "2"}},)
    layers += ({"arguments": {"archive.format": 2}}, {"flags": {"archive.format": "2"}})
    for layer in layers:
        assert load(**layer) == load()
    write(tmp_path, "format = 1\n[archive]\nformat = 1\n")
    with pytest.raises(InvalidConfig, match=r"archive\.format must be 2, got 1") as caught:
        load(tmp_path)
    assert "Remove the setting" in caught.value.hint
    with pytest.raises(InvalidConfig, match="got '1'"):
        load(environ={"FOURFOLD_ARCHIVE_FORMAT": "1"})


@pytest.mark.parametrize("layer", ["arguments", "flags"])
def test_unknown_argument_or_flag_raises(layer):
    with pytest.raises(InvalidConfig, match=r"objects\.uri") as caught:
        load(**{layer: {"objects.uri": "x"}})
    assert "objects.url" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel.readers_max", 0),
        ("kernel.readers_max", 1025),
        ("kernel.readers_max", True),
        ("kernel.readers_max", 2.0),
        ("kernel.readers_max", "2"),
        ("kernel.readers_max", None),
        ("kernel.readers_max", [2]),
        ("kernel.transaction_deadline_s", float("nan")),
        ("kernel.transaction_deadline_s", float("inf")),
        ("kernel.transaction_deadline_s", 0),
        ("kernel.transaction_deadline_s", "30"),
        ("kernel.commit_placement", "AUTO"),
        ("kernel.commit_placement", 1),
        ("documents.page_size", 256),
        ("documents.page_size", 5000),
        ("documents.page_size", 131072),
        ("streams.synchronous", "OFF"),
        ("objects.url", ""),
        ("objects.retries_max", -1),
    ],
)
def test_invalid_value_is_rejected_with_name_and_expectation(name, value):
    with pytest.raises(InvalidConfig) as caught:
        load(arguments={name: value})
    assert caught.value.message.startswith(
        f"{name} must be {settings_module.SETTINGS[name].expects}, got "
    )
    assert f"argument {name}" in caught.value.message


@pytest.mark.parametrize("text", ["", " ", "abc", "1_0", "0x8", "8 ", "null", "true", "8.5"])
def test_text_from_the_environment_is_converted_strictly(text):
    with pytest.raises(InvalidConfig, match="FOURFOLD_KERNEL_READERS_MAX"):
        load(environ={"FOURFOLD_KERNEL_READERS_MAX": text})


def test_text_from_the_environment_is_converted_to_setting_type():
    settings = load(
        environ={
            "FOURFOLD_KERNEL_READERS_MAX": "16",
            "FOURFOLD_KERNEL_TRANSACTION_DEADLINE_S": "1.5",
            "FOURFOLD_DOCUMENTS_PAGE_SIZE": "4096",
            "FOURFOLD_KERNEL_COMMIT_PLACEMENT": "thread",
            "FOURFOLD_OBJECTS_URL": "12",
        }
    )
    assert settings.kernel.readers_max == 16
    assert settings.kernel.transaction_deadline_s == 1.5
    assert settings.documents.page_size == 4096
    assert settings.kernel.commit_placement == "thread"
    assert settings.objects.url == "12"


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("kernel.group_requests_max", "kernel.queue_requests_max"),
        ("kernel.group_bytes_max", "kernel.queue_bytes_max"),
        ("health.wal_degraded_bytes", "health.wal_failed_bytes"),
    ],
)
def test_contradicting_settings_are_rejected_with_both_sources(small, large):
    variable = settings_module.SETTINGS[large].variable
    with pytest.raises(InvalidConfig) as caught:
        load(environ={variable: "2048"}, arguments={small: 4096})
    for word in (small, large, variable, "argument"):
        assert word in caught.value.message


def test_fresh_file_sets_only_defaults(tmp_path):
    assert load(write(tmp_path, settings_module.fresh_file())) == load()


def test_uncommented_fresh_file_sets_every_default(tmp_path):
    lines = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in settings_module.fresh_file().splitlines()
    ]
    settings = load(write(tmp_path, "\n".join(lines)))
    assert set(settings.sources) == set(settings_module.SETTINGS)
    assert all(row.value == row.default for row in settings.explain())


def test_every_setting_has_description_and_own_variable():
    variables = {setting.variable for setting in settings_module.SETTINGS.values()}
    assert len(variables) == len(settings_module.SETTINGS)
    assert not variables & set(settings_module.NOT_SETTINGS)
    for setting in settings_module.SETTINGS.values():
        assert setting.description.endswith(".")
        assert setting.choices or isinstance(setting.default, str) or setting.maximum is not None


def test_loading_does_not_read_the_process_environment(monkeypatch):
    monkeypatch.setitem(os.environ, "FOURFOLD_NONSENSE", "1")
    assert load() == settings_module.Settings()


values = st.one_of(st.integers(), st.floats(), st.text(max_size=20), st.booleans(), st.none())


@given(name=st.sampled_from(sorted(settings_module.SETTINGS)), value=values)
def test_any_value_is_either_stored_unchanged_or_rejected(name, value):
    try:
        settings = load(arguments={name: value})
    except InvalidConfig:
        return
    assert settings[name] == value
    assert type(settings[name]) is type(settings_module.SETTINGS[name].default)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_file_content_loads_or_raises_typed_error(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("store")
    with contextlib.suppress(InvalidConfig, FutureFormat):
        load(write(root, text))
