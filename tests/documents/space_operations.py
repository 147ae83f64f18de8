"""What random lives of a space are made of: few entities, few paths, values that are easily
confused.
"""

from __future__ import annotations

from hypothesis import strategies as st

ENTITIES = ("a", "b", "of:c")
NEVER = "never:written"

LEAVES = st.sampled_from([None, True, 0, 1, 1.0, -2, "x", "é", "X-y", 2**70, 0.1])
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.sampled_from("nlo"), LEAVES)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 3),
        "l": st.lists(LEAVES, max_size=3),
        "o": st.dictionaries(st.sampled_from("nlo"), VALUES, max_size=2),
        "value": VALUES,
    },
)
# Few paths, some of which are never there, so that patches and reads meet, and some fail.
PATHS = st.sampled_from(
    ["/n", "/l", "/l/0", "/l/1", "/l/-", "/o", "/o/n", "/o/l", "/o/l/0", "/value", "/x/y", "/o/o/n"]
)
READ_PATHS = PATHS.filter(lambda path: path != "/l/-").map(lambda path: path[1:].split("/"))
NUMBERS = st.sampled_from([1, 2, -1, 0.5])


def patch_of(op, **fields):
    return st.fixed_dictionaries({"op": st.just(op), "path": PATHS, **fields})


PATCHES = st.lists(
    st.one_of(
        patch_of("add", value=VALUES),
        patch_of("replace", value=VALUES),
        patch_of("append", values=st.lists(VALUES, max_size=2)),
        patch_of("increment", by=NUMBERS),
        patch_of("add-unique", values=st.lists(LEAVES, max_size=3)),
        patch_of("remove"),
        patch_of("remove-by-value", value=LEAVES),
        patch_of("move", **{"from": PATHS}),
        patch_of(
            "splice",
            index=st.integers(0, 2),
            remove=st.integers(0, 2),
            add=st.lists(LEAVES, max_size=2),
        ),
    ),
    min_size=1,
    max_size=3,
)
# One of them more often, so that it gets a long life.
ENTITY = st.sampled_from(("a", "a", *ENTITIES))
OPERATION = st.one_of(
    st.fixed_dictionaries({"op": st.just("set"), "id": ENTITY, "value": DOCUMENTS}),
    st.fixed_dictionaries({"op": st.just("patch"), "id": ENTITY, "patches": PATCHES}),
    st.fixed_dictionaries({"op": st.just("delete"), "id": ENTITY}),
)
PICK = st.integers(0, 1000)
