"""Accounting and injected faults, around any store."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
)
from fourfold.objects import (
    AccountingStore,
    Fault,
    FaultyStore,
    FolderStore,
    MemoryStore,
    RequestCount,
    RequestCounter,
)
from fourfold.testing.faulty_store import at, every, first_of, seeded
from fourfold.testing.object_contract import ObjectStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fourfold.objects import ObjectStore


def classify(key: str) -> tuple[str, str]:
    stream, _, rest = key.partition("/")
    return stream, rest.partition("/")[0] or "other"


class TestAccounting(ObjectStoreContract):
    """A store that is watched keeps the whole contract."""

    uploads_in_bounded_memory = False
    keys_to_list = 1_100
    histories = 8

    @pytest.fixture
    def make_store(self) -> Callable[[], ObjectStore]:
        return lambda: AccountingStore(MemoryStore(), RequestCounter(), classify)


class TestFaultless(ObjectStoreContract):
    """So does one whose plan is empty."""

    uploads_in_bounded_memory = False
    keys_to_list = 1_100
    histories = 8

    @pytest.fixture
    def make_store(self) -> Callable[[], ObjectStore]:
        return lambda: FaultyStore(MemoryStore(), at({}))


@pytest.fixture
def counter() -> RequestCounter:
    return RequestCounter()


@pytest.fixture
def counted(counter: RequestCounter) -> Iterator[AccountingStore]:
    with AccountingStore(MemoryStore(), counter, classify) as store:
        yield store


def test_requests_are_added_up_by_stream_artifact_and_op(
    counted: AccountingStore, counter: RequestCounter
) -> None:
    counted.put("s1/segment/1", b"12345")
    counted.upload("s1/segment/2", [b"123", b"45", b"678"])
    counted.put("s2/manifest", b"{}")
    counted.get("s1/segment/1")
    counted.get_range("s1/segment/2", 2, 3)
    assert list(counted.read("s1/segment/2", 3)) == [b"123", b"456", b"78"]
    counted.head("s2/manifest")
    assert len(list(counted.list("s1/segment/"))) == 2
    counted.delete("s1/segment/1")
    counted.delete_many(["s1/segment/2", "s2/manifest"])
    expected = (
        RequestCount("s1", "segment", "delete", 2, 0),
        RequestCount("s1", "segment", "get", 3, 5 + 3 + 8),
        RequestCount("s1", "segment", "list", 1, 0),
        RequestCount("s1", "segment", "put", 2, 13),
        RequestCount("s2", "manifest", "delete", 1, 0),
        RequestCount("s2", "manifest", "head", 1, 0),
        RequestCount("s2", "manifest", "put", 1, 2),
    )
    assert counter.snapshot() == expected
    assert counter.snapshot(reset=True) == expected
    assert counter.snapshot() == ()


def test_requests_that_fail_count_and_calls_refused_do_not(
    counted: AccountingStore, counter: RequestCounter
) -> None:
    counted.put("s/x", b"one", if_absent=True)
    with pytest.raises(AlreadyExists):
        counted.put("s/x", b"four", if_absent=True)
    with pytest.raises(PreconditionFailed):
        counted.put("s/x", b"five5", if_version="old")
    for call in (counted.get, lambda key: list(counted.read(key, 1))):
        with pytest.raises(NotFound):
            call("s/absent")
    with pytest.raises(RuntimeError):
        counted.upload("s/x", _failing())
    refused: list[Callable[[], object]] = [
        lambda: counted.put("bad//key", b""),
        lambda: counted.put("s/x", "text"),
        lambda: counted.get_range("s/x", -1, 0),
        lambda: counted.delete_many(["s/x", "/"]),
        lambda: counted.read("s/x", 0),
        lambda: counted.list("/"),
    ]
    for call in refused:
        with pytest.raises(InvalidInput):
            call()
    assert counter.snapshot() == (
        RequestCount("s", "absent", "get", 2, 0),
        RequestCount("s", "x", "put", 4, 3 + 4 + 5 + 2),
    )


def _failing() -> Iterator[bytes]:
    yield b"ab"
    raise RuntimeError("source")


def test_a_listing_counts_its_pages_also_when_it_is_abandoned(
    counted: AccountingStore, counter: RequestCounter
) -> None:
    for number in range(2_001):
        counted.put(f"s/n/{number:04d}", b"")
    counter.snapshot(reset=True)
    assert sum(1 for _ in counted.list("s/n")) == 2_001
    listing = counted.list("s/n")
    for _ in range(1_001):
        next(listing)
    listing.close()
    assert list(counted.list("s/none")) == []
    assert counter.snapshot() == (
        RequestCount("s", "n", "list", 3 + 2, 0),
        RequestCount("s", "none", "list", 1, 0),
    )


def test_counts_from_many_threads_are_all_there(
    counted: AccountingStore, counter: RequestCounter
) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: counted.put(f"s/x/{number % 5}", b"12"), range(800)))
    assert counter.snapshot() == (RequestCount("s", "x", "put", 800, 1_600),)


def test_every_nth_call_fails_before_its_effect() -> None:
    store = FaultyStore(MemoryStore(), every(3, Fault.FAIL))
    outcomes = []
    for number in range(9):
        try:
            store.put(f"k{number}", b"x")
            outcomes.append("")
        except ObjectStoreError as exc:
            outcomes.append(str(exc))
    assert [bool(outcome) for outcome in outcomes] == [False, False, True] * 3
    assert outcomes[5] == "injected fault 'fail' in call 6, put 'k5'"
    assert [injection.call.number for injection in store.injected] == [3, 6, 9]
    assert {injection.call.key for injection in store.injected} == {"k2", "k5", "k8"}


def test_faults_can_wait_for_one_kind_of_call() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, every(2, Fault.FAIL, op="delete"))
    for key in ("a", "b"):
        store.put(key, b"x")
        store.get(key)
    assert store.delete("a") is True
    with pytest.raises(ObjectStoreError):
        store.delete("b")
    assert inner.head("b") is not None
    assert [(hit.call.op, hit.call.op_number) for hit in store.injected] == [("delete", 2)]


def test_a_write_that_timed_out_is_there_all_the_same() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, every(1, Fault.TIME_OUT))
    with pytest.raises(ObjectStoreError):
        store.put("k", b"one", if_absent=True)
    assert inner.get("k").data == b"one"
    with pytest.raises(AlreadyExists):
        store.put("k", b"two", if_absent=True)
    with pytest.raises(ObjectStoreError):
        store.upload("u", [b"a", b"b"])
    assert inner.get("u").data == b"ab"
    with pytest.raises(ObjectStoreError):
        store.delete("k")
    assert inner.head("k") is None
    seen = []
    with pytest.raises(ObjectStoreError):
        seen.extend(store.list())
    with pytest.raises(ObjectStoreError):
        list(store.read("u", 1))


def test_a_torn_write_leaves_a_prefix_in_a_broken_store() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, every(1, Fault.TEAR))
    with pytest.raises(ObjectStoreError):
        store.put("k", b"12345678", if_absent=True)
    assert inner.get("k").data == b"1234"
    with pytest.raises(ObjectStoreError):
        store.upload("u", iter([b"abcd", b"efgh"]))
    assert inner.get("u").data == b"ab"
    with pytest.raises(AlreadyExists):
        store.put("k", b"other", if_absent=True)
    with pytest.raises(ObjectStoreError):
        store.get("k")
    assert [hit.fault for hit in store.injected] == [Fault.TEAR] * 3 + [Fault.FAIL]


def test_torn_write_in_folder_leaves_only_temp_file(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as inner:
        inner.put("k", b"old")
        store = FaultyStore(inner, every(1, Fault.TEAR))
        with pytest.raises(ObjectStoreError):
            store.put("k", b"12345678")
        with pytest.raises(ObjectStoreError):
            store.upload("new", [b"12345678"])
        assert [info.key for info in inner.list()] == ["k"]
        assert inner.get("k").data == b"old"
        assert sorted(path.read_bytes() for path in inner.temp_folder.iterdir()) == [b"1234"] * 2
        assert inner.sweep(older_than_s=0) == 2


def test_a_seed_gives_the_same_faults_at_about_the_rate() -> None:
    def run(seed: int) -> list[tuple[int, Fault]]:
        store = FaultyStore(MemoryStore(), seeded(seed, rate=0.25))
        for number in range(400):
            try:
                store.put(f"k{number}", b"xy")
            except ObjectStoreError:
                continue
        return [(hit.call.number, hit.fault) for hit in store.injected]

    assert run(1) == run(1) != run(2)
    assert 60 < len(run(1)) < 140
    assert set(Counter(fault for _, fault in run(1))) == set(Fault)


def test_plans_combine_and_refuse_nonsense() -> None:
    store = FaultyStore(
        MemoryStore(),
        first_of(at({2: Fault.TEAR}), at({1: Fault.FAIL}, op="head"), every(4, Fault.FAIL)),
    )
    store.put("k", b"1234")
    with pytest.raises(ObjectStoreError):
        store.put("k", b"1234")
    for _ in range(2):
        with pytest.raises(ObjectStoreError):
            store.head("k")
    assert [hit.fault for hit in store.injected] == [Fault.TEAR, Fault.FAIL, Fault.FAIL]
    for nonsense in (
        lambda: every(0, Fault.FAIL),
        lambda: seeded(1, rate=2),
        lambda: seeded(1, rate=0.5, faults=()),
    ):
        with pytest.raises(InvalidInput):
            nonsense()
