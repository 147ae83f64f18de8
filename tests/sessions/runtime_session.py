"""What the tests of the runtime share: a runtime with one session, and what must always hold."""

from __future__ import annotations

from fourfold.models.sessions.runtime import Runtime

SID = "root"


class Death(BaseException):
    """Stands for the end of a process: nothing in the runtime catches it."""


def runtime(sessions, step, **options):
    made = Runtime(sessions, step, **options)
    made.start({"id": SID, "model": "any"})
    return made


def types(sessions, sid=SID):
    return [event.type for event in sessions.events_since(sid, 0)]


def sound(sessions):
    assert sessions.verify() == []
    assert sessions.verify_no_dangling_refs() == []
    for info in sessions.list_sessions():
        view = sessions.current_view(info.id)
        assert view == view.materialize()
