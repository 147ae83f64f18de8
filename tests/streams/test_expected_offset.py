"""Conditional appends: accepted only at the expected end of the stream."""

from __future__ import annotations

import asyncio

import pytest
from opened_streams import JSON

from fourfold.errors import InvalidInput, PreconditionFailed, StreamClosed
from fourfold.models.streams import Append, Offset, Producer


@pytest.fixture
def log(streams):
    stream = streams.create("log", JSON)
    stream.append([1, 2])
    return stream


def values(stream):
    return [record.value for record in stream.read()]


def test_append_at_the_expected_end_is_accepted(log):
    for expected in (2, Offset(3), str(Offset(4))):
        log.append("x", expected=expected)
    end = log.position()
    assert log.append_bytes(b"7", expected=end).next_offset == end.record + 1
    assert values(log) == [1, 2, "x", "x", "x", 7]


def test_append_at_another_end_is_refused_with_the_current_one(log):
    for expected in (0, 1, 3, Offset(1), Offset(3), Offset(2, 1)):
        with pytest.raises(PreconditionFailed) as refused:
            log.append("x", expected=expected)
        assert refused.value.details["next_offset"] == log.position()
    assert log.append("x", expected=refused.value.details["next_offset"]).next_offset == 3
    assert values(log) == [1, 2, "x"]


@pytest.mark.parametrize("expected", ["-1", "now", -1, True, 1.0, "x", b"2", [2]])
def test_expected_end_must_be_an_offset(log, expected):
    with pytest.raises(InvalidInput):
        log.append("x", expected=expected)
    assert values(log) == [1, 2]


def test_end_of_an_earlier_incarnation_is_not_expected(streams, log):
    end = log.position()
    streams.delete("log")
    again = streams.create("log", JSON)
    again.append([1, 2])
    with pytest.raises(PreconditionFailed):
        again.append("x", expected=end)
    empty = streams.create("empty", JSON)
    start = empty.position()
    streams.delete("empty")
    with pytest.raises(PreconditionFailed):
        streams.create("empty", JSON).append("x", expected=start)
    again.append("x", expected=2)


def test_duplicate_of_an_accepted_request_stays_a_duplicate(log):
    first = Producer("p", 0, 0)
    assert not log.append("x", producer=first, expected=2).duplicate
    log.append("y")
    assert log.append("x", producer=first, expected=2).duplicate
    with pytest.raises(PreconditionFailed):
        log.append("z", producer=Producer("p", 0, 1), expected=2)
    # The refused request did not use its number.
    assert not log.append("z", producer=Producer("p", 0, 1), expected=4).duplicate
    assert values(log) == [1, 2, "x", "y", "z"]


def test_of_appends_that_share_a_commit_one_meets_the_condition(streams, log):
    async def race():
        appends = (log.append_async(n, expected=2) for n in range(5))
        return await asyncio.gather(*appends, return_exceptions=True)

    outcomes = asyncio.run(race())
    refused = [outcome for outcome in outcomes if isinstance(outcome, PreconditionFailed)]
    assert len(refused) == 4
    assert {error.details["next_offset"] for error in refused} == {Offset(3)}
    assert len(values(log)) == 3


def test_condition_sees_the_appends_of_its_transaction(opened, log):
    with opened.database.write():
        log.append(3)
        with pytest.raises(PreconditionFailed):
            log.append("x", expected=2)
        log.append(4, expected=3)
    assert values(log) == [1, 2, 3, 4]


def test_closing_has_a_condition_too(log):
    with pytest.raises(PreconditionFailed):
        log.append([], close=True, expected=1)
    for _ in range(2):
        assert log.append([], close=True, expected=2).closed
    with pytest.raises(PreconditionFailed):
        log.append([], close=True, expected=1)
    with pytest.raises(StreamClosed):
        log.append("x", expected=2)


def test_fork_ends_where_it_ends(streams, log):
    fork = log.fork("fork", 1)
    log.append("source")
    with pytest.raises(PreconditionFailed):
        fork.append("x", expected=3)
    assert fork.append("x", expected=fork.position()).next_offset == 2
    assert streams.append("fork", Append([b"3"], None, expected=Offset(2))).next_offset == 3
