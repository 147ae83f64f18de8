"""The checker finds each kind of broken promise, and none in correct histories."""

from __future__ import annotations

from bench.reliability.history import Entry, Operation, Poll, Reader, check
from hypothesis import given
from hypothesis import strategies as st


def appended(value, invoked, returned, position=None, outcome="acknowledged"):
    values = tuple(value.split())
    return Operation(values, invoked, returned, outcome, position)


def logged(*values, start=0):
    return [Entry(start + place, value) for place, value in enumerate(values)]


def kinds(*arguments, **options):
    return [violation.kind for violation in check(*arguments, **options)]


def test_correct_history_has_no_violations():
    operations = [
        appended("a", 1, 2, 0),
        appended("b c", 3, 6, 1),
        appended("d", 4, 5, 3),
        appended("e", 7, 8, outcome="unknown"),
        appended("f", 7, 8, outcome="unknown"),
        appended("g", 9, 10, outcome="refused"),
    ]
    log = logged("a", "b", "c", "d", "f")
    reader = Reader(log[:4], [Poll(0, 0), Poll(2, 1), Poll(7, 4)])
    assert kinds(operations, log, [reader]) == []


def test_acknowledged_value_that_is_absent_is_lost():
    assert kinds([appended("a", 1, 2, 0)], []) == ["lost"]


def test_value_that_is_there_twice_is_doubled():
    assert kinds([appended("a", 1, 2)], logged("a", "a")) == ["doubled"]
    unknown = appended("a", 1, 2, outcome="unknown")
    assert kinds([unknown], logged("a", "a")) == ["doubled"]


def test_refused_value_in_the_log_is_a_violation():
    assert kinds([appended("a", 1, 2, outcome="refused")], logged("a")) == ["refused"]


def test_value_that_no_client_sent_is_foreign():
    assert kinds([], logged("a")) == ["foreign"]


def test_partial_operation_is_torn():
    unknown = appended("a b", 1, 2, outcome="unknown")
    assert kinds([unknown], logged("a")) == ["torn"]
    assert kinds([appended("a b", 1, 2)], logged("b")) == ["lost", "torn"]
    other = appended("x", 1, 2)
    assert kinds([unknown, other], logged("a", "x", "b")) == ["torn"]
    assert kinds([unknown], logged("b", "a")) == ["torn"]


def test_value_at_another_position_is_moved():
    assert kinds([appended("a", 1, 2, 4)], logged("a", start=5)) == ["moved"]


def test_later_operation_before_an_earlier_one_is_reordered():
    operations = [appended("a", 1, 2), appended("b", 3, 4)]
    assert kinds(operations, logged("b", "a")) == ["reordered"]
    # Side by side, either order is right.
    operations = [appended("a", 1, 3), appended("b", 2, 4)]
    assert kinds(operations, logged("b", "a")) == []
    # Without a response it may be done later than everything else.
    operations = [appended("a", 1, 2, outcome="unknown"), appended("b", 3, 4)]
    assert kinds(operations, logged("b", "a")) == []


def test_reader_with_other_entries_than_the_log_differs():
    operations = [appended("a", 1, 2), appended("b", 3, 4)]
    log = logged("a", "b")
    for entries in (logged("b"), logged("a", start=1), logged("a", "b", "c")):
        assert kinds(operations, log, [Reader(entries)]) == ["reader"]


def test_poll_without_an_acknowledged_value_is_stale():
    reader = Reader(logged("a"), [Poll(1, 0), Poll(5, 1)])
    operations = [appended("a", 1, 2), appended("b", 3, 4)]
    assert kinds(operations, logged("a", "b"), [reader]) == ["stale"]


def test_decreasing_times_are_found_where_they_must_grow():
    log = [Entry(1, "a", "2026-01-02"), Entry(2, "b", "2026-01-01")]
    operations = [appended("a", 1, 2), appended("b", 3, 4)]
    assert kinds(operations, log) == []
    assert kinds(operations, log, times_grow=True) == ["time"]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.data())
def test_damage_of_any_serial_history_is_found(sizes, data):
    operations, log, clock = [], [], 0
    for number, size in enumerate(sizes):
        values = tuple(f"{number}-{part}" for part in range(size))
        operations.append(Operation(values, clock, clock + 1, "acknowledged", len(log)))
        log += [Entry(len(log) + part, value) for part, value in enumerate(values)]
        clock += 2
    assert check(operations, log) == []
    places = st.integers(0, len(log) - 1)
    damaged = list(log)
    one, other = data.draw(places), data.draw(places)
    if one == other:
        del damaged[one]
    else:
        damaged[one], damaged[other] = damaged[other], damaged[one]
    assert check(operations, damaged)
