"""The page about the kernel says what the code says: numbers, points and names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fourfold import kernel, limits
from fourfold.kernel import GroupLimits, Options, Profile, Thresholds, failpoints, profiles
from fourfold.kernel.backup import Sidecar
from fourfold.kernel.bulk_insert import BULK_ROWS_PER_STATEMENT
from fourfold.kernel.group_commit import INLINE_COMMIT_MS_MAX
from fourfold.kernel.group_runner import CAUTIOUS_GROUPS
from fourfold.kernel.metrics import BUSY_WINDOW_S, SLOW_LOG_ENTRIES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "kernel.md").read_text(encoding="utf-8")
PROFILES = {name: each for name, each in vars(profiles).items() if isinstance(each, Profile)}


@pytest.mark.parametrize("point", failpoints.POINTS)
def test_every_fault_point_is_on_the_page(point):
    assert f"`{point}`" in PAGE


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_on_the_page_with_its_numbers(name):
    profile = PROFILES[name]
    mapped = f"{profile.mmap_bytes // limits.MIB} MiB" if profile.mmap_bytes else "0"
    row = (name, profile.synchronous, profile.page_size, f"{profile.cache_kib} KiB", mapped)
    assert "| `{}` | {} | {} | {} | {} |".format(*row) in PAGE
    assert (profile.foreign_keys, profile.busy_timeout_ms) == (True, 5_000)


def size(count):
    for unit, name in ((limits.GIB, "GiB"), (limits.MIB, "MiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count:,}"


def test_thresholds_on_page_equal_the_code():
    numbers = Thresholds()
    log = (size(numbers.wal_degraded_bytes), size(numbers.wal_failed_bytes))
    disk = (size(numbers.disk_degraded_bytes), size(numbers.disk_failed_bytes))
    busy = (BUSY_WINDOW_S, numbers.busy_degraded_count)
    assert "| `wal_size_bytes` | {} or more | {} or more |".format(*log) in PAGE
    assert "| `disk_free_bytes` | less than {} | less than {} |".format(*disk) in PAGE
    assert "in the last {:g} s | {} or more |".format(*busy) in PAGE


def test_bounds_on_page_equal_the_code():
    for field in dataclasses.fields(GroupLimits):
        if field.name != "placement":
            assert f"| `{field.name}` | {size(field.default)} |" in PAGE
    for field in dataclasses.fields(Options):
        if field.default is not dataclasses.MISSING:
            shown = size(field.default) if "bytes" in field.name else f"{field.default:,g}"
            assert f"| `{field.name}` | {shown} |" in PAGE.replace("30.0", "30")
    assert f"longer than {INLINE_COMMIT_MS_MAX:g} ms" in PAGE
    assert f"the next {CAUTIOUS_GROUPS} groups" in PAGE
    assert f"{BULK_ROWS_PER_STATEMENT} to a statement" in PAGE
    assert f"every {limits.DEADLINE_CHECK_STEPS:,} steps" in PAGE
    assert f"the newest {SLOW_LOG_ENTRIES}" in PAGE


@pytest.mark.parametrize("name", Sidecar.__struct_fields__)
def test_every_field_of_the_sidecar_is_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_every_public_call_of_a_database_is_on_the_page():
    members = {name: m for name, m in vars(kernel.Database).items() if not name.startswith("_")}
    missing = [
        name
        for name, member in members.items()
        if (f"`{name}`" if isinstance(member, property) else f"{name}(") not in PAGE
    ]
    assert missing == ["checkpoint_in_background"]


@pytest.mark.parametrize("kind", [kernel.ReadTransaction, kernel.Transaction])
def test_every_public_call_of_a_handle_is_on_the_page(kind):
    names = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in names if f"`{name}" not in PAGE and f"{name}(" not in PAGE] == []
