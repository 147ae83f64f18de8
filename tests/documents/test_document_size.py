"""The limit of a document's size holds for what patches and merges make of it, too."""

from __future__ import annotations

import pytest
from drawn_documents import DOCUMENTS, patches, pointer
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold.errors import ContentError, InvalidInput
from fourfold.models.documents import bundle, patch
from fourfold.models.documents.encoding import PATCH_GROWTH, bytes_at_most, trusted

LIMIT = 2_000


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(limits, "DOCUMENT_BYTES_MAX", LIMIT)


def append(text):
    return [{"op": "append", "path": "/l", "values": [text]}]


def size(space, entity, **where):
    return len(trusted(space.read(entity, **where).document).encode())


def test_patch_is_refused_when_its_result_exceeds_the_limit(space, limit):
    space.set("d", {"l": ["x" * 1_200]})
    before = space.seq()
    with pytest.raises(ContentError, match="at most 2000"):
        space.patch("d", append("y" * 900))
    assert space.seq() == before
    assert space.read("d").document == {"l": ["x" * 1_200]}
    # What fits exactly is accepted, one byte more is not.
    room = LIMIT - size(space, "d") - len(',""')
    with pytest.raises(ContentError):
        space.patch("d", append("y" * (room + 1)))
    space.patch("d", append("y" * room))
    assert size(space, "d") == LIMIT


def test_limit_counts_bytes_and_not_characters(space, limit):
    space.set("d", {"l": ["é" * 800]})
    with pytest.raises(ContentError):
        space.patch("d", append("ü" * 250))
    space.patch("d", append("u" * 250))


@pytest.mark.parametrize("warm", [True, False])
def test_many_small_patches_do_not_pass_the_limit_together(space, limit, warm):
    for number in range(400):
        try:
            space.patch("d", append(f"{number:09}"))
        except ContentError:
            break
        if not warm:
            space._cache.clear()
    assert LIMIT - 12 < size(space, "d") <= LIMIT
    assert space.read("d").document["l"][-1] == f"{number - 1:09}"
    # It can be deleted, brought back, and changed as long as it does not grow.
    seq = space.seq()
    space.delete("d")
    space.transact(space.diff("", None, seq).operations)
    space.patch("d", [{"op": "replace", "path": "/l/0", "value": "another 9"}])


def test_several_operations_of_one_commit_do_not_pass_limit_together(space, limit):
    with pytest.raises(ContentError, match="operation 1"):
        space.transact(
            [{"op": "patch", "id": "d", "patches": append("x" * 1_200)} for _ in range(2)]
        )
    assert space.read("d") is None


def test_patch_on_a_branch_counts_what_it_inherits(space, limit):
    space.set("d", {"l": ["x" * 1_200]})
    space.patch("d", append("x" * 200))
    space.branches.create("f")
    with pytest.raises(ContentError):
        space.patch("d", append("y" * 700), branch="f")
    space.patch("d", append("y" * 500), branch="f")


def test_merge_is_refused_when_its_result_exceeds_the_limit(space, limit):
    space.set("d", {"a": "", "b": ""})
    space.branches.create("f")
    space.patch("d", [{"op": "replace", "path": "/a", "value": "x" * 1_100}])
    space.patch("d", [{"op": "replace", "path": "/b", "value": "y" * 1_100}], branch="f")
    before = space.seq()
    with pytest.raises(ContentError, match="at most 2000"):
        space.branches.merge("f")
    assert space.seq() == before
    assert space.read("d").document == {"a": "x" * 1_100, "b": ""}


def test_larger_documents_of_earlier_versions_are_carried_over(store, space, history, monkeypatch):
    space.set("d", {"l": ["x" * 1_200]})
    space.patch("d", append("y" * 900))
    monkeypatch.setattr(limits, "DOCUMENT_BYTES_MAX", LIMIT)
    other = store.space("did:key:z6MkOther", history="facts")
    bundle.carry_over(space, other)
    imported = store.space("did:key:z6MkImported", history=history)
    bundle.replay(imported, bundle.export(space))
    for each in (other, imported):
        assert each.read("d") == space.read("d")
    # They can be made smaller.
    space.patch("d", [{"op": "remove", "path": "/l/0"}])


@given(st.data())
def test_patch_adds_at_most_its_own_length_times_the_factor(data):
    document = data.draw(DOCUMENTS)
    names = st.lists(st.sampled_from(["", "~", "é", "\n"]), min_size=1, max_size=9)
    way = {"op": "increment", "path": pointer(data.draw(names)), "by": 0.1}
    for each in (way, data.draw(patches(document))):
        try:
            after = patch.apply(document, [each])
        except InvalidInput:
            continue
        bound = bytes_at_most(trusted(document)) + PATCH_GROWTH * bytes_at_most(trusted([each]))
        assert len(trusted(after).encode()) <= bound
