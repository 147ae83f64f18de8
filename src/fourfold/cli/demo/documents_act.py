"""The demo's act on documents: a plan that is changed, branched, merged, looked back at and
undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fourfold
from fourfold.models.documents import Space

if TYPE_CHECKING:
    from fourfold.cli.demo.acts import Shown, Stage

_DID = "did:web:demo.example"
_PLAN = "urn:plan:dinner"
_START = {"dish": "soup", "guests": ["Ada"], "budget": 40}


def documents_branch_and_travel(stage: Stage) -> Shown:
    """A document is branched, changed on both sides, merged, and read as it was."""
    with fourfold.open(stage.root) as store:
        space = store.space(_DID)
        first = space.set(_PLAN, _START)
        space.branches.create("idea")
        space.patch(_PLAN, [{"op": "replace", "path": "/dish", "value": "curry"}], branch="idea")
        space.patch(_PLAN, [{"op": "append", "path": "/guests", "values": ["Grace"]}])
        apart = [_dish_and_guests(space, branch) for branch in ("", "idea")]
        merged = space.branches.merge("idea")
        assert merged.commit is not None
        together = _dish_and_guests(space, "")
        then = space.read(_PLAN, at=first.seq)
        assert then is not None
        space.delete(_PLAN)
        space.transact(space.diff("", None, merged.commit.seq).operations)
        undone = _dish_and_guests(space, "") == together
        sound = space.verify() == []
        seq = space.seq()
    lines = [
        f"seq {first.seq}: {_PLAN} is set; a branch goes its own way, and nothing is copied",
        f"by default {apart[0]}; on the branch {apart[1]}",
        f"seq {merged.commit.seq}: merged field by field: {together}",
        f"read as of seq {first.seq}: unchanged: {then.document == _START}",
        f"deleted, and brought back from the past: {undone}",
        f"{seq} commits, each checked against its digest; sound: {sound}",
    ]
    return lines, {
        "merged": together,
        "past_unchanged": then.document == _START,
        "undone": undone,
        "commits": seq,
        "sound": sound,
    }


def _dish_and_guests(space: Space, branch: str) -> str:
    state = space.read(_PLAN, branch)
    assert state is not None
    assert state.document is not None
    return f"{state.document['dish']} for {' and '.join(state.document['guests'])}"
