"""The bounded cache."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.cache import LruCache


def test_cache_evicts_least_recently_used_entry():
    cache = LruCache(2)
    assert cache.put("a", 1) == []
    assert cache.put("b", 2) == []
    assert cache.get("a") == 1
    assert cache.put("c", 3) == ["b"]
    assert cache.get("b") is None
    assert len(cache) == 2


def test_membership_does_not_mark_as_used():
    cache = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" in cache
    assert cache.put("c", 3) == ["a"]


def test_replaced_value_counts_once():
    cache = LruCache(10, len)
    cache.put("a", b"12345678")
    assert cache.put("a", b"123") == []
    assert cache.weight == 3


def test_value_heavier_than_the_cache_is_not_cached():
    cache = LruCache(3, len)
    cache.put("small", b"12")
    assert cache.put("large", b"1234") == ["small", "large"]
    assert (len(cache), cache.weight) == (0, 0)


def test_pop_and_clear_release_weight():
    cache = LruCache(10, len)
    cache.put("a", b"123")
    cache.put("b", b"45")
    assert cache.pop("a") == b"123"
    assert cache.pop("a") is None
    assert cache.weight == 2
    cache.clear()
    assert (len(cache), cache.weight) == (0, 0)


@pytest.mark.parametrize("value", [None, 0, b""])
def test_falsy_values_are_evicted_like_others(value):
    cache = LruCache(1)
    cache.put("a", value)
    assert cache.put("b", value) == ["a"]


@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.sampled_from("gpx"), st.integers(0, 5), st.integers(0, 4))),
)
def test_cache_behaves_like_a_naive_model(most, steps):
    cache, model = LruCache(most, lambda value: value), OrderedDict()
    for step, key, value in steps:
        if step == "g":
            assert cache.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
        elif step == "x":
            assert cache.pop(key) == model.pop(key, None)
        else:
            model.pop(key, None)
            model[key] = value
            evicted = []
            while sum(model.values()) > most:
                evicted.append(model.popitem(last=False)[0])
            assert cache.put(key, value) == evicted
        assert cache.weight == sum(model.values()) <= most
        assert [name for name in range(6) if name in cache] == sorted(model)
