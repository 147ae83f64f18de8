"""A request as the log keeps it: one text for one meaning, so that one that comes again is seen."""

from __future__ import annotations

import json

from drawn_documents import DOCUMENTS
from hypothesis import given
from hypothesis import strategies as st

from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.request import make_request

IDS = st.sampled_from(["a", 'quote"d', "back\\slash", "é", "urn:note:1", "line\nbreak"])
PATCHES = st.lists(
    st.builds(lambda value: {"op": "add", "path": "/a", "value": value}, DOCUMENTS), max_size=3
)
OPERATIONS = st.lists(
    st.builds(lambda name, value: {"op": "set", "id": name, "value": value}, IDS, DOCUMENTS)
    | st.builds(lambda name, patches: {"op": "patch", "id": name, "patches": patches}, IDS, PATCHES)
    | st.builds(lambda name: {"op": "delete", "id": name}, IDS),
    min_size=1,
    max_size=4,
)
READS = st.none() | st.builds(
    lambda name, seq: {"confirmed": [{"id": name, "seq": seq, "path": ["a", 'b"']}]},
    IDS,
    st.integers(0, 9),
)
CONDITIONS = st.lists(st.builds(lambda name: {"kind": "absent", "id": name}, IDS), max_size=2)


@given(OPERATIONS, READS, CONDITIONS, st.sampled_from(["", "a/b", "f-1"]), st.integers(0, 2**40))
def test_text_of_a_request_is_its_sorted_json(operations, reads, conditions, branch, local_seq):
    request = make_request(
        operations,
        branch=branch,
        session="s",
        local_seq=local_seq,
        replayable=True,
        reads=reads,
        preconditions=conditions,
    )
    asked = json.loads(request.original)
    assert trusted(asked) == request.original
    assert list(asked) == ["branch", "local_seq", "operations", "preconditions", "reads"]
    assert asked["operations"] == operations
    assert (asked["branch"], asked["local_seq"]) == (branch, local_seq)
    assert asked["preconditions"] == conditions
    confirmed = [] if reads is None else reads["confirmed"]
    shown = [(each["id"], each["seq"], each["path"]) for each in asked["reads"]["confirmed"]]
    assert shown == [(each["id"], each["seq"], each["path"]) for each in confirmed]
