"""A shared shopping list: two phones write it, an idea is tried on a branch, a mistake is undone.

Run it: `python examples/documents.py`. It prints the list as it goes.
"""

from __future__ import annotations

import fourfold
from fourfold import Commit, Space
from fourfold.errors import StaleRead

LIST = "urn:list:saturday"


def show(space: Space, title: str, branch: str = "", at: int | None = None) -> None:
    state = space.read(LIST, branch, at)
    items = state.document["items"] if state and state.document else []
    print(f"{title:<24} {', '.join(items) or '(nothing)'}")


def replace_first(space: Space, item: str, *, seen: int, local_seq: int) -> Commit:
    """Replace the first item, if the items are still those that were read at the seq `seen`.

    The request has a name (its session and local_seq), so sending it twice does no harm.
    """
    change = {"op": "replace", "path": "/items/0", "value": item}
    return space.transact(
        [{"op": "patch", "id": LIST, "patches": [change]}],
        reads={"confirmed": [{"id": LIST, "seq": seen, "path": ["items"]}]},
        session="phone-1",
        local_seq=local_seq,
    )


with fourfold.open(":memory:") as store:
    space = store.space("did:web:home.example")
    space.set(LIST, {"title": "Saturday", "items": ["bread"]})

    # Appending needs no read: two phones that add items never conflict.
    for item in ("milk", "apples"):
        space.patch(LIST, [{"op": "append", "path": "/items", "values": [item]}])
    show(space, "two phones added:")

    # Replacing what was read needs one: another phone may have changed it meanwhile.
    seen = space.seq()
    space.patch(LIST, [{"op": "append", "path": "/items", "values": ["tea"]}])
    try:
        replace_first(space, "rye bread", seen=seen, local_seq=1)
    except StaleRead as error:
        print("refused:", error)
    seen = space.seq()
    once = replace_first(space, "rye bread", seen=seen, local_seq=2)
    again = replace_first(space, "rye bread", seen=seen, local_seq=2)
    assert (again.seq, again.replayed) == (once.seq, True)
    show(space, "one request, sent twice:")

    # An idea: a branch shows the list as it is, and changes nothing of it.
    space.branches.create("party")
    space.patch(LIST, [{"op": "add", "path": "/theme", "value": "blue"}], branch="party")
    space.set("urn:list:drinks", {"items": ["lemonade"]}, branch="party")
    space.patch(LIST, [{"op": "remove-by-value", "path": "/items", "value": "tea"}])
    merged = space.branches.merge("party")
    print("merged:", ", ".join(f"{each['op']} {each['id']}" for each in merged.operations))
    show(space, "after the merge:")

    # A mistake, and its undo: the old state returns as a new commit.
    before = space.seq()
    space.set(LIST, {"items": []})
    show(space, "a mistake:")
    space.transact(space.diff("", None, before).operations)
    show(space, "undone:")
    show(space, f"as it was at seq {before + 1}:", at=before + 1)
    assert space.verify() == []
