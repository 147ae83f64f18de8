"""Agents that are killed: the next process continues, and repeats nothing that was recorded."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
from runtime_child import SID, undisturbed

import fourfold
from support.crash import run

SCRIPT = Path(__file__).with_name("runtime_child.py")
LIVES_MAX = 60


def recorded(sessions):
    """What the logs say, without what differs from run to run: times, and the digests over them."""
    found = {}
    for info in sessions.list_sessions():
        view = sessions.current_view(info.id)
        found[info.id] = (
            [
                {**turn, "final_ref": sessions.read_payload(turn["final_ref"])}
                for turn in view.turns
            ],
            [(step["turn_id"], step["number"], step["status"]) for step in view.steps],
            [sessions.read_payload(message["content"]) for message in view.messages],
            [(each["turn_id"], each["step_id"], each["index"]) for each in view.evals],
            [head.kind for head in view.heads],
            sorted((edge.type, edge.to_session) for edge in view.edges),
        )
    return found


def live_until_done(tmp_path, point, more, mode="several"):
    """Start the program again and again, each time killed a little later, until it is done."""
    root, effects = tmp_path / "store", tmp_path / "effects"
    for kills in range(LIVES_MAX):
        fault = f"{point}=kill@{more * (kills + 1)}"
        crash = run(SCRIPT, mode, str(root), str(effects), fault=fault)
        if not crash.killed:
            assert crash.lines[-1:] == ("done",), crash
            return root, effects.read_text().split("\n")[:-1], kills
    raise AssertionError(f"not done after {LIVES_MAX} lives")


@pytest.mark.parametrize(
    ("point", "more"),
    [
        ("kernel.commit.before", 9),
        ("kernel.commit.after", 8),
        pytest.param("kernel.commit.before", 2, marks=pytest.mark.slow),
        pytest.param("kernel.commit.after", 3, marks=pytest.mark.slow),
        pytest.param("kernel.acknowledge.before", 3, marks=pytest.mark.slow),
    ],
)
def test_program_killed_over_and_over_comes_to_same_end(tmp_path, point, more):
    root, effects, kills = live_until_done(tmp_path, point, more)
    expected, _ = undisturbed(tmp_path / "undisturbed")
    planned = (tmp_path / "undisturbed").read_text().split("\n")[:-1]
    assert kills > 2
    with fourfold.open(root) as store:
        assert recorded(store.sessions) == recorded(expected)
        assert store.sessions.verify() == []
        assert store.sessions.verify_no_dangling_refs() == []
        evals = store.sessions.current_view(SID).evals
        assert len({(each["step_id"], each["index"]) for each in evals}) == len(evals)
    # An effect is repeated only if its process died before it could be recorded; several lanes may
    # be under way then.
    count = collections.Counter(effects)
    assert count.keys() == set(planned)
    assert sum(count.values()) - len(count) <= 2 * kills


@pytest.mark.parametrize(
    ("point", "more"),
    [
        ("kernel.commit.before", 3),
        ("kernel.commit.after", 3),
        pytest.param("kernel.commit.before", 1, marks=pytest.mark.slow),
        pytest.param("kernel.acknowledge.before", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_timers_signals_and_retries_come_to_the_same_end(tmp_path, point, more):
    root, effects, kills = live_until_done(tmp_path, point, more, "waiting")
    assert kills > 2
    with fourfold.open(root) as store:
        sessions = store.sessions
        view = sessions.current_view(SID)
        assert [turn["status"] for turn in view.turns] == ["final"]
        value = sessions.read_payload(view.turns[0]["final_ref"])
        assert value == ["flaky", "slept", "child", 0, 1]
        events = [event.data for event in sessions.events(SID)]
        # Every wait was recorded once, every attempt counted once, every signal received once.
        assert [each["timer"]["seconds"] for each in events if "timer" in each] == [0.01, 1_000]
        numbers = [each["attempt"]["number"] for each in events if "attempt" in each]
        assert numbers == list(range(1, len(numbers) + 1))
        signals = [each["signal"] for each in events if "signal" in each]
        assert [each["value"] for each in signals] == [0, 1, 0, 1]
        assert len(view.evals) == 2
        assert sessions.verify() == []
        assert sessions.list_leases() == []
    count = collections.Counter(effects)
    assert count["flaky"] >= len(numbers) + 1
    assert sum(count.values()) - len(numbers) - 3 <= kills
