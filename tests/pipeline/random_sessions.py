"""Random sessions in one store, and their expected views at any position."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from fourfold.content import decode, encode
from fourfold.errors import FourfoldError, InvalidInput, NotFound
from fourfold.models.sessions import Payload
from fourfold.models.sessions.fold import FoldState

FAR = "sha256:" + "f" * 64
SMALL = st.sampled_from(
    [None, True, 0, -1, 2.5, 2**70, "x", "é\u20ac", '"\\\n', [1, ["a"]], {"~n": {}}]
)
FIELDS = st.dictionaries(
    st.sampled_from(["status", "role", "content", "name", "x"]), SMALL, max_size=3
)
USAGE = st.dictionaries(
    st.sampled_from(["tokens", "input_tokens", "output_tokens", "cost"]),
    st.sampled_from([0, 3, 0.25, "many", None]),
    max_size=3,
)


def _of(kind, entity, fields=FIELDS):
    return fields.map(lambda held: {"type": kind, entity: held})


_TURN = st.builds(lambda held, usage: {**held, "usage": usage}, FIELDS, USAGE)
_PUT = st.builds(lambda held, number: {**held, "id": number}, _TURN, st.integers(1, 3))
EVENT = st.one_of(
    _of("session/started", "session"),
    _of("turn/started", "turn"),
    _of("turn/put", "turn", _PUT),
    _of("turn/put", "turn", _PUT),
    _of("step/started", "step"),
    _of("step/put", "step", _PUT),
    _of("message/appended", "message"),
    _of("eval/added", "eval"),
    SMALL.map(lambda value: {"type": "session/vars-snapshotted", "vars_ref": value}),
    st.builds(
        lambda value, held: {"type": "session/compacted", "vars_ref": value, "message": held},
        SMALL,
        FIELDS,
    ),
    st.just({"type": "session/stop-requested"}),
    SMALL.map(lambda value: {"type": "session/error", "error": value}),
    _of("invented/later", "held"),
)
SID = st.sampled_from("stu")
STEP = st.one_of(
    st.tuples(st.just("append"), SID, st.lists(EVENT, min_size=1, max_size=6)),
    st.tuples(st.just("append"), SID, st.lists(EVENT, min_size=1, max_size=6)),
    st.tuples(st.just("publish"), SID, st.integers(0, 2)),
    st.tuples(st.just("join"), SID, SID),
    st.tuples(st.just("payload"), SID, st.sampled_from([10, 600, 70_000])),
    st.tuples(st.just("delete"), SID, st.integers(0, 3)),
)
LIVES = st.lists(STEP, min_size=4, max_size=14)


class Life:
    """Three sessions that take random steps; steps that the store refuses are skipped."""

    def __init__(self, sessions, number):
        self.sessions = sessions
        self.names = {letter: f"{letter}{number:04}" for letter in "stu"}
        self.heads = {letter: [] for letter in "stu"}
        for sid in self.names.values():
            sessions.create_session({"id": sid})

    def live(self, steps):
        for what, letter, about in steps:
            try:
                getattr(self, what)(letter, about)
            except (InvalidInput, NotFound):
                continue

    def append(self, letter, events):
        self.sessions.append_events(self.names[letter], events)

    def publish(self, letter, note):
        self.heads[letter].append(self.sessions.publish_head(self.names[letter], {"note": note}).id)

    def join(self, letter, other):
        heads = self.heads[letter] or [None]
        to = (self.heads[other] or [FAR])[-1]
        target = self.names[other] if to != FAR else "elsewhere"
        edge = {"type": "invocation", "from_head": heads[0], "to_head": to, "to_session": target}
        self.sessions.append_lineage_edge(self.names[letter], edge)

    def payload(self, letter, size):
        message = {"role": "user", "content": Payload(letter * size)}
        self.sessions.append_event(
            self.names[letter], {"type": "message/appended", "message": message}
        )

    def delete(self, letter, rarely):
        if not rarely:
            self.sessions.delete_session(self.names[letter])


def lives_of(sessions, count, seed=None):
    """Create a number of random lives in one log."""
    lives = []

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(LIVES)
    def begin(steps):
        life = Life(sessions, len(lives))
        lives.append(life)
        life.live(steps)

    (begin if seed is None else seeded(seed)(begin))()
    return lives


def view_of(sessions, sid, position):
    """Return a session at a position of the store, or None if it did not exist."""
    try:
        events = sessions.events_since(sid)
    except FourfoldError:
        return None
    until = sum(event.position <= position for event in events)
    return sessions.view_at(sid, until) if until or not events else None


def state_row(row):
    """Convert a row of `view` to the state that it shows."""
    info = None if row["info"] is None else decode(row["info"].encode())
    return FoldState(
        session=info,
        counters=type(FoldState().counters)(
            row["event_id"], row["messages"], row["turns"], row["steps"], row["evals"]
        ),
        current_head=row["current_head"],
        covered=row["covered"],
        vars_ref=None if row["vars_ref"] is None else decode(row["vars_ref"].encode()),
        compact_from_event_id=row["compact_from_event_id"],
        error=None if row["error"] is None else decode(row["error"].encode()),
        digest=b""
        if row["digest"] is None
        else bytes.fromhex(row["digest"].removeprefix("sha256:")),
    )


def entities(rows, entity):
    """Group rows of `turns`, `steps`, `messages` or `evals` as the lists of views, by session."""
    result = {}
    for row in sorted(rows, key=lambda row: row[f"{entity}_id"]):
        item = {**decode(row[entity].encode()), "id": row[f"{entity}_id"]}
        result.setdefault(row["session"], []).append(item)
    return result


def same(one, other):
    """Compare including types: 1 is not 1.0."""
    return encode(one) == encode(other)
