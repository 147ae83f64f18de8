"""Keys and file names: reversible, in order, and apart even on a file system that folds names."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from fourfold.objects.folder import decode_entry, path_names
from fourfold.objects.validation import is_key, position_before

CHARACTERS = st.sampled_from("aAbB.+%/ é\u0301!~0zZ-")
KEYS = (
    st.text(CHARACTERS, min_size=1, max_size=12)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
    | st.builds(
        lambda c, n, tail: c * n + tail,
        st.sampled_from("aé"),
        st.integers(38, 130),
        st.text(CHARACTERS, max_size=3),
    )
    | st.lists(st.sampled_from(["_delta_log", "_delta_log+", "%5fdelta_log", "a"]), min_size=1).map(
        "/".join
    )
    | st.builds(
        "{}{}{}".format, st.just("a" * 80), st.just("_delta_log"), st.sampled_from(["", "/a"])
    )
).filter(is_key)


def walked(names: list[str]) -> list[bytes]:
    """What each name adds, as a listing decodes it on its way down."""
    starts = [b""]
    for name in names:
        entry = decode_entry(starts[-1], name, is_folder=len(starts) < len(names))
        assert entry is not None, names
        starts.append(entry.start)
    return starts[1:]


@given(KEYS)
def test_a_path_leads_back_to_its_key(key: str) -> None:
    names = path_names(key)
    assert walked(names)[-1] == key.encode()
    assert all(0 < len(name.encode()) <= 255 and not name.startswith(".") for name in names)


@given(KEYS, KEYS)
def test_walking_folders_in_order_gives_keys_in_order(one: str, two: str) -> None:
    if one == two:
        return
    for above, below in zip(walked(path_names(one)), walked(path_names(two)), strict=False):
        if above != below:
            assert (above < below) == (one.encode() < two.encode())
            return
    raise AssertionError("one path is the start of the other")


@given(KEYS, KEYS)
def test_two_keys_never_share_a_file_where_names_are_folded(one: str, two: str) -> None:
    def folded(key: str) -> list[str]:
        return [unicodedata.normalize("NFC", name).casefold() for name in path_names(key)]

    assert (folded(one) == folded(two)) == (one == two)
    # A file of one key is never a folder of the other either.
    shorter, longer = sorted((folded(one), folded(two)), key=len)
    assert one == two or longer[: len(shorter)] != shorter


@given(KEYS, KEYS)
def test_position_before_prefix_skips_no_key_that_has_it(prefix: str, key: str) -> None:
    position = position_before(prefix)
    assert position < prefix
    assert (key > position) >= (key >= prefix)
    assert prefix + key > position
