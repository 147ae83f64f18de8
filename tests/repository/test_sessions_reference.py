"""The reference of sessions is complete: every public call, record and event is on its page."""

from __future__ import annotations

import inspect

import markdown_pages as markdown
import pytest
import repository_files as tree

from fourfold.models import sessions
from fourfold.models.sessions import runtime
from fourfold.models.sessions.fold import HELD, STATUS_OF

PAGE = (tree.ROOT / "docs" / "reference" / "sessions.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())  # Lines are wrapped anywhere.
CALLS = [name for name in dir(sessions.Sessions) if not name.startswith("_")]
RECORDS = [
    sessions.BundleReport,
    sessions.Claim,
    sessions.GcReport,
    sessions.LineageEdge,
    sessions.Gap,
    sessions.Head,
    sessions.HeadComparison,
    sessions.LineageGraph,
    sessions.SessionInfo,
    sessions.Transient,
    runtime.TurnResult,
]
RUNTIME = [name for name in vars(runtime.Runtime) if not name.startswith("_")]
TURN = {name for each in runtime.Turn.__mro__[:2] for name in vars(each) if name[0] != "_"}


@pytest.mark.parametrize("name", [each for each in CALLS if not each.endswith("_async")])
def test_every_call_is_documented_with_its_defaults(name):
    call = getattr(sessions.Sessions, name)
    assert f"`{name}(" in TEXT or f"`sessions.{name}(" in TEXT
    for parameter in list(inspect.signature(call).parameters.values())[1:]:
        if parameter.default is not inspect.Parameter.empty:
            default = repr(parameter.default).replace("'", '"')
            assert f"{parameter.name}={default}" in TEXT, parameter


@pytest.mark.parametrize("name", [each for each in CALLS if each.endswith("_async")])
def test_every_twin_for_coroutines_has_the_same_arguments(name):
    twin, call = (getattr(sessions.Sessions, each) for each in (name, name.removesuffix("_async")))
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(call)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_record_is_documented_with_its_fields(record):
    fields = ", ".join(inspect.signature(record).parameters)
    assert f"`{record.__name__}({fields})`" in TEXT


@pytest.mark.parametrize("kind", [*HELD, *STATUS_OF])
def test_every_event_is_documented_with_what_it_carries(kind):
    events = markdown.section(PAGE, "## Events")
    [row] = [line for line in events.splitlines() if line.startswith("| `") and f"`{kind}`" in line]
    for name in HELD.get(kind, ()):
        assert f"`{name}`" in row


@pytest.mark.parametrize("name", ["id", "state", "counters", "messages", "kept_messages"])
def test_every_part_of_a_view_is_documented(name):
    assert hasattr(sessions.SessionView, name) or name == "state"
    assert f"`{name}" in TEXT


@pytest.mark.parametrize("name", [each for each in RUNTIME if not each.endswith("_async")])
def test_every_call_of_the_runtime_is_documented_with_its_defaults(name):
    section = markdown.section(PAGE, "## The runtime")
    assert f"`{name}(" in section
    for call in (getattr(runtime.Runtime, name), runtime.Runtime):
        for parameter in inspect.signature(call).parameters.values():
            if parameter.default is not inspect.Parameter.empty and parameter.name != "clock":
                default = repr(parameter.default).replace("'", '"')
                assert f"{parameter.name}={default}" in section, parameter


@pytest.mark.parametrize("name", [each for each in RUNTIME if each.endswith("_async")])
def test_every_twin_of_the_runtime_has_the_same_arguments(name):
    twin, call = (getattr(runtime.Runtime, each) for each in (name, name.removesuffix("_async")))
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(call)


@pytest.mark.parametrize("name", sorted(TURN))
def test_everything_that_a_step_can_do_is_documented(name):
    section = markdown.section(PAGE, "### In a step")
    assert f"`{name}`" in section or f"`{name}(" in section
    assert hasattr(runtime.AsyncTurn, name)
