"""Any program, dying at any write and any number of times, leaves the log of a calm life."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_session import SID, Death

from fourfold.errors import CallFailed
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final, Runtime
from support.properties import examples

OPERATION = st.sampled_from(["call", "fail", "say", "set", "large", "use", "child", "attach"])
PROGRAM = st.lists(st.lists(OPERATION, max_size=4), min_size=1, max_size=3)
DEATHS = st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4)
WRITES = (
    "append_events",
    "publish_head",
    "append_lineage_edge",
    "create_session",
    "intern_payload",
)


class Mortal:
    """Sessions whose process dies right before or right after its n-th write."""

    def __init__(self, sessions, death):
        self._sessions = sessions
        self._left, self._after = death or (0, False)

    def __getattr__(self, name):
        found = getattr(self._sessions, name)
        if name not in WRITES:
            return found

        def write(*args, **options):
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Death
            result = found(*args, **options)
            if self._left == 0:
                raise Death
            return result

        return write


def stepping(program, effects):
    def effect(name):
        effects.append(name)
        return name * 300

    def step(turn):
        for number, operation in enumerate(program[turn.number - 1]):
            name = f"{turn.session} {turn.id}.{turn.number}.{number}"
            if operation == "call":
                turn.vars["called"] = turn.call("effect", effect, name)[:9]
            elif operation == "fail":
                with pytest.raises(CallFailed):
                    turn.call("fails", lambda name=name: effects.append(name) or 1 / 0)
            elif operation == "say":
                turn.say("assistant", name)
            elif operation == "set":
                turn.vars[f"v{number}"] = turn.number
            elif operation == "large":
                turn.vars.setdefault("large", ["y" * 600]).append(name)
            elif operation == "use":
                turn.use(tokens=number)
            elif operation == "child":
                turn.vars["child"] = turn.run_child(name, step=child).value
            else:
                turn.vars["attached"] = turn.attach("source", name, step=child).value
        return Final(sorted(turn.vars)) if turn.number == len(program) else None

    def child(turn):
        turn.call("effect", effect, turn.task)
        return Final([turn.task, sorted(turn.vars)])

    return step


def run(program, deaths):
    """Two turns of a program, begun again after each death; the sessions, and the effects."""
    sessions, effects, waiting = Sessions(), [], list(deaths)
    source = Runtime(sessions, lambda turn: turn.vars.update(old=1) or Final())
    source.start({"id": "source", "model": "any"})
    source.run_turn("source", "go")
    died = 0
    while True:
        try:
            mortal = Mortal(sessions, waiting.pop() if waiting else None)
            runtime = Runtime(mortal, stepping(program, effects))
            runtime.start({"id": SID, "model": "any"})
            results = [runtime.run_turn(SID, task, key=task) for task in ("first", "second")]
        except Death:
            died += 1
            continue
        return sessions, effects, results, died


def recorded(sessions):
    def plain(event):
        # Heads and edges name digests, and those cover the times.
        data = event.data
        if event.type == "head/published":
            data = {name: data["head"][name] for name in ("kind", "turn_id", "event_range")}
        elif event.type == "lineage/edge-added":
            data = {name: data["edge"][name] for name in ("type", "from_session", "to_session")}
        elif event.type == "session/started":
            data = {**data["session"], "source_head": None}
        return event.type, data

    return {
        info.id: [plain(event) for event in sessions.events_since(info.id)]
        for info in sessions.list_sessions()
    }


@settings(max_examples=examples(100), deadline=None)
@given(PROGRAM, DEATHS)
def test_dying_leaves_no_trace_in_what_is_recorded(program, deaths):
    sessions, effects, results, died = run(program, deaths)
    calm, planned, expected, _ = run(program, [])
    assert recorded(sessions) == recorded(calm)
    assert [(each.status, each.value, each.usage) for each in results] == [
        (each.status, each.value, each.usage) for each in expected
    ]
    # Only what was done and not recorded is done again, once for each death.
    count = Counter(effects)
    count.subtract(planned)
    assert min(count.values(), default=0) >= 0
    assert count.total() <= died
    assert sessions.verify() == []
    assert sessions.verify_no_dangling_refs() == []
    sessions.close()
    calm.close()
