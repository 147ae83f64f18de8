"""Random events and scripts of them, as callers give them."""

from __future__ import annotations

from hypothesis import strategies as st

from fourfold.testing.strategies import json_values

IDS = ("s", "t", "u")
SID = st.sampled_from(IDS)
SMALL = st.one_of(st.none(), st.integers(-3, 3), st.text(max_size=5), json_values(max_leaves=4))
FIELDS = st.dictionaries(st.sampled_from(["status", "role", "content", "x"]), SMALL, max_size=3)


def of(kind, entity):
    return FIELDS.map(lambda fields: {"type": kind, entity: fields})


def put(entity):
    """Most of them name something that may be there."""
    return st.builds(
        lambda fields, number: {"type": f"{entity}/put", entity: {**fields, "id": number}},
        FIELDS,
        st.integers(1, 5),
    )


EVENT = st.one_of(
    FIELDS.map(lambda fields: {"type": "session/started", "session": fields}),
    of("turn/started", "turn"),
    of("turn/started", "turn"),
    put("turn"),
    of("step/started", "step"),
    put("step"),
    of("message/appended", "message"),
    of("message/appended", "message"),
    of("eval/added", "eval"),
    SMALL.map(lambda value: {"type": "session/vars-snapshotted", "vars_ref": value}),
    st.builds(
        lambda value, fields, at: {
            "type": "session/compacted",
            "vars_ref": value,
            "message": fields,
            **({} if at is None else {"compact_from_event_id": at}),
        },
        SMALL,
        FIELDS,
        st.none() | st.integers(1, 12),
    ),
    st.just({"type": "session/stop-requested"}),
    st.just({"type": "session/stopped"}),
    SMALL.map(lambda value: {"type": "session/error", "error": value}),
    FIELDS.map(lambda fields: {"type": "invented/later", "held": fields}),
)
EVENTS = st.lists(EVENT, min_size=1, max_size=6)
