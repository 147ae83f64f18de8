"""Pages of the change feed: in the order of writing, whole numbers, and about as long as asked."""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from itertools import pairwise

import pytest
from graph_nodes import APP
from test_inserts import attr, parent

from fourfold.models.graphs import GraphChange, feed
from fourfold.models.graphs.verify import problems


def pages(graphs, **wanted):
    feed = graphs.feed(timeout=0, **wanted)
    found = list(feed)
    return found, feed.position


def test_feed_has_rows_of_all_tables_in_write_order(graphs, types):
    kinds = []
    for turn in range(3):
        with graphs.transaction() as txn:
            for _ in range(turn + 1):
                note = graphs.insert_parent(APP, parent(types), txn=txn)
                graphs.insert_many_attrs(APP, [attr(types, note)] * 2, txn=txn)
                kinds += ["parent", "attr", "attr"]
    (page,), position = pages(graphs)
    assert [change.kind for change in page] == kinds
    assert [change.row.position for change in page] == [*range(3), *range(6), *range(9)]
    assert position == 3


def test_a_page_of_large_envelopes_holds_few_of_them(graphs, types):
    for _ in range(6):
        graphs.insert_many_parents(APP, [parent(types)] * 300)
    found, position = pages(graphs, limit=100)
    assert [len(page) for page in found] == [300] * 6
    assert [{change.global_seq for change in page} for page in found] == [{n} for n in range(1, 7)]
    assert position == 6


def test_page_of_small_envelopes_has_about_the_requested_rows(graphs, types):
    with graphs.database.write():
        for _ in range(500):
            graphs.insert_parent(APP, parent(types))
    found, position = pages(graphs, limit=100)
    assert sum(len(page) for page in found) == position == 500
    assert all(50 <= len(page) <= 200 for page in found[:-1])


def test_large_envelope_does_not_enlarge_the_page_before_it(graphs, types):
    with graphs.database.write():
        for _ in range(30):
            graphs.insert_parent(APP, parent(types))
        graphs.insert_many_parents(APP, [parent(types)] * 2000)
        for _ in range(30):
            graphs.insert_parent(APP, parent(types))
    found, position = pages(graphs, limit=40)
    assert [change.row.id for page in found for change in page] == list(range(1, 2061))
    assert position == 61
    assert sum(len(page) >= 2000 for page in found) == 1
    assert all(len(page) <= 80 for page in found if len(page) < 2000)


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_rows_with_a_rare_flag_are_found_one_by_one(graphs, types, limit):
    """Where a walk over all rows between them would take long."""
    with graphs.database.write():
        for turn in range(40):
            graphs.insert_many_parents(APP, [parent(types)] * 60)
            if turn % 13 == 0:
                rows = [parent(types, sync_flags=4 * (n % 2)) for n in range(4)]
                graphs.insert_many_parents(APP, rows)
    found, position = pages(graphs, flag_mask=4, limit=limit)
    seen = [change.row for page in found for change in page]
    wanted = [row for row in graphs.select_parents(APP) if row.sync_flags & 4]
    assert seen == wanted
    assert len(wanted) == 8
    assert position == graphs.get_global_seq()


def test_a_feed_that_wants_nothing_passes_every_number(graphs, types):
    graphs.insert_parent(APP, parent(types))
    for nothing in ({"apps": []}, {"kinds": []}, {"flag_mask": 0}, {"apps": [7]}):
        assert pages(graphs, **nothing) == ([], 1)


def test_a_change_cannot_be_changed(graphs, types):
    graphs.insert_parent(APP, parent(types))
    ((change,),), _ = pages(graphs)
    with pytest.raises(AttributeError):
        change.row = None
    with pytest.raises(AttributeError):
        change.row.id = 5
    assert change == pages(graphs)[0][0][0]


def test_flags_set_in_the_writing_transaction_are_in_its_envelope(graphs, types):
    with graphs.transaction() as txn:
        first = graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.next_global_seq(txn)
        second = graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.update_sync_flags(APP, "parent", [first, second], 4, txn=txn)
        graphs.update_sync_flags(APP, "parent", [second], 2, txn=txn)
    for mask, ids in ((4, [first]), (2, [second]), (1, [])):
        found, position = pages(graphs, flag_mask=mask)
        assert [change.row.id for page in found for change in page] == ids
        pending = graphs.select_pending_rows(APP, "parent", mask, 10, 0)
        assert [row.id for row in pending] == ids
        assert position == 2
    with graphs.database.read() as snapshot:
        assert problems(snapshot, "graphs", graphs.node) == []


def write_mixed(graphs, types, count, *, shared=()):
    """Envelopes of a shared parent and an attribute that is private, or shared in those named."""
    with graphs.database.write():
        for n in range(count):
            with graphs.transaction() as txn:
                note = graphs.insert_parent(APP, parent(types, sync_flags=1), txn=txn)
                flags = int(n in shared)
                graphs.insert_attr(APP, attr(types, note, sync_flags=flags), txn=txn)


@pytest.mark.parametrize("limit", [1, 3, 200, 1000])
def test_feed_goes_on_after_pages_in_which_no_row_matches(graphs, types, limit):
    write_mixed(graphs, types, 600, shared={599})
    found, position = pages(graphs, kinds=["attr"], flag_mask=1, limit=limit)
    assert [change.row.id for page in found for change in page] == [600]
    assert position == 600


@pytest.mark.parametrize("limit", [1, 3, 200, 1000])
def test_feed_goes_on_after_rows_whose_flags_were_cleared(graphs, types, limit):
    with graphs.database.write():
        ids = [graphs.insert_parent(APP, parent(types, sync_flags=1)) for _ in range(600)]
    graphs.update_sync_flags(APP, "parent", ids[:-1], 0)
    found, _ = pages(graphs, flag_mask=1, limit=limit)
    assert [change.row.id for page in found for change in page] == [600]


def test_blocking_feed_does_not_wait_while_the_log_has_more(graphs, types, monkeypatch):
    write_mixed(graphs, types, 600, shared={599})
    waits = []
    monkeypatch.setattr(graphs.notifier, "wait", lambda *given: waits.append(given))
    feed = graphs.feed(kinds=["attr"], flag_mask=1, limit=100)
    assert [change.row.id for change in feed.next()] == [600]
    assert waits == []


def test_async_feed_does_not_wait_while_the_log_has_more(graphs, types):
    write_mixed(graphs, types, 600, shared={599})

    async def read():
        feed = graphs.feed(kinds=["attr"], flag_mask=1, limit=100, timeout=0)
        return [change.row.id async for page in feed for change in page]

    assert asyncio.run(read()) == [600]


def test_feed_returns_at_its_timeout_and_goes_on_when_iterated(graphs, types, monkeypatch):
    """A call is bounded; the end of the iteration is the end of the log all the same."""
    write_mixed(graphs, types, 3000, shared={2999})
    clock = iter(range(10**6))
    monkeypatch.setattr("fourfold.models.graphs.feed.time.monotonic", lambda: next(clock))
    feed = graphs.feed(kinds=["attr"], flag_mask=1, limit=100)
    assert feed.next(0.5) == ()
    assert 0 < feed.position < 3000
    feed = graphs.feed(kinds=["attr"], flag_mask=1, limit=100, timeout=0.5)
    assert [change.row.id for page in feed for change in page] == [3000]


@pytest.mark.parametrize("limit", [1, 10, 1000])
@pytest.mark.parametrize("mask", [None, 1])
def test_page_exceeds_its_limit_only_for_one_transaction(graphs, types, limit, mask):
    sizes = [700, 3, 4, 5, 700, 700, *[1] * 40, 700]
    with graphs.database.write():
        for size in sizes:
            graphs.insert_many_parents(APP, [parent(types, sync_flags=1)] * size)
    found, position = pages(graphs, flag_mask=mask, limit=limit)
    assert [change.row.id for page in found for change in page] == list(range(1, sum(sizes) + 1))
    assert position == len(sizes)
    for page in found:
        seqs = {change.global_seq for change in page}
        assert len(page) <= limit or len(seqs) == 1
    # Nor is a page much smaller than it may be.
    for page, following in pairwise(found):
        assert len(page) + len(following) > limit // 2


def test_page_counts_the_rows_of_all_tables(graphs, types):
    write_mixed(graphs, types, 50, shared=range(50))
    found, _ = pages(graphs, limit=10)
    assert [len(page) for page in found] == [10] * 10
    found, _ = pages(graphs, flag_mask=1, limit=10)
    assert [len(page) for page in found] == [10] * 10


@pytest.fixture
def steps(graphs, monkeypatch):
    """The number of rows in each step of the pages that are read."""
    rows, steps, paced = [], [], graphs.database.paced

    def change(*fields):
        rows.append(fields)
        return GraphChange(*fields)

    @contextmanager
    def counted():
        with paced():
            yield end_step

    def end_step():
        steps.append(len(rows))
        rows.clear()

    monkeypatch.setattr(feed, "GraphChange", change)
    monkeypatch.setattr(graphs.database, "paced", counted)
    return steps


@pytest.mark.parametrize("flag_mask", [None, 4])
def test_page_of_large_transaction_is_read_in_steps(graphs, types, steps, flag_mask):
    count = 5 * feed.FEED_STEP_ROWS + 1
    graphs.insert_many_parents(APP, [parent(types, sync_flags=4)] * count)
    (page,), position = pages(graphs, flag_mask=flag_mask, limit=10)
    assert [change.row.position for change in page] == list(range(count))
    assert position == 1
    # The page is first read up to its limit, to see that the transaction is larger.
    assert steps == [11, *[feed.FEED_STEP_ROWS] * 5, 1]


def test_rows_of_all_tables_are_read_in_steps(graphs, types, steps):
    count = 2 * feed.FEED_STEP_ROWS
    with graphs.transaction() as txn:
        note = graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.insert_many_attrs(APP, [attr(types, note)] * count, txn=txn)
        graphs.insert_many_parents(APP, [parent(types)] * count, txn=txn)
    (page,), _ = pages(graphs, limit=10 * count)
    assert [change.row.position for change in page] == list(range(2 * count + 1))
    assert sum(steps) == 2 * count + 1
    assert max(steps) == feed.FEED_STEP_ROWS


@pytest.fixture
def collections():
    """The generations of the garbage collections of the test."""
    generations = []

    def note(phase, info):
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)


def test_page_of_large_transaction_starts_no_garbage_collections(graphs, types, collections):
    count = 10 * gc.get_threshold()[0]
    graphs.insert_many_parents(APP, [parent(types)] * count)
    collections.clear()
    (page,), _ = pages(graphs)
    # Its objects are visited once, after it.
    assert (len(page), len(collections)) in {(count, 0), (count, 1)}
    assert gc.isenabled()
