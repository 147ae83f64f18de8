"""Contract of every blob store, as a pytest class.

Subclass it, override the fixture `store` with a new, empty store, and `damage` with a way to change
the stored bytes directly:

    class TestMyBlobs(BlobStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyBlobs(tmp_path)

        def damage(self, store, blob_id, data):
            (store.root / blob_id).write_bytes(data)
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fourfold import limits
from fourfold.blobs import BlobStore, BlobUsage
from fourfold.content import EMPTY_ID, content_id
from fourfold.errors import ContentError, CorruptData, InvalidInput, NotFound

ABSENT = content_id(b"never stored")
MALFORMED = ("", "sha256:", "sha256:" + "A" * 64, "a" * 64, "../etc", "sha256:" + "a" * 63, None)
SIZES = (0, 1, 1000, limits.BLOB_CHUNK_BYTES, limits.BLOB_CHUNK_BYTES + 1)


class BlobStoreContract:
    """Requirements of every BlobStore; the tests are the promises of `fourfold.blobs.protocol`."""

    @pytest.fixture
    def store(self) -> BlobStore:
        """Return an empty store; a subclass overrides this fixture."""
        raise NotImplementedError("override the fixture `store`")

    def damage(self, store: BlobStore, blob_id: str, data: bytes) -> None:
        """Replace the stored bytes of a blob without using the store."""
        raise NotImplementedError

    @pytest.mark.parametrize("size", SIZES)
    def test_blob_id_is_the_hash_of_its_content(self, store: BlobStore, size: int) -> None:
        data = make_data(size)
        blob_id = store.put(data)
        assert blob_id == content_id(data)
        assert store.get(blob_id) == data
        assert store.has(blob_id)
        assert store.size(blob_id) == size

    @pytest.mark.parametrize("size", SIZES)
    def test_put_stream_stores_the_same_blob_as_put(self, store: BlobStore, size: int) -> None:
        data = make_data(size)
        step = 1 + size // 3
        pieces = [b"", *(data[at : at + step] for at in range(0, size, step)), b""]
        expected = content_id(data)
        for source in (pieces, iter(pieces), io.BytesIO(data), io.BufferedReader(io.BytesIO(data))):
            assert store.put_stream(source) == expected
            assert store.get(expected) == data
            assert store.usage() == BlobUsage(1, size)
            assert store.delete(expected)

    def test_put_stream_accepts_one_reused_buffer(self, store: BlobStore) -> None:
        def reused() -> Iterator[bytearray]:
            buffer = bytearray(4)
            for letter in b"abc":
                buffer[:] = bytes([letter]) * 4
                yield buffer

        assert store.get(store.put_stream(reused())) == b"aaaabbbbcccc"

    def test_equal_bytes_are_stored_once(self, store: BlobStore) -> None:
        first = store.put(b"same")
        assert store.put(bytearray(b"same")) == first
        assert store.put(memoryview(b"xsamex")[1:5]) == first
        assert store.put_stream([b"sa", bytearray(b"me")]) == first
        assert store.usage() == BlobUsage(1, 4)
        assert list(store.ids()) == [first]

    def test_mutable_buffer_may_change_after_put(self, store: BlobStore) -> None:
        buffer = bytearray(b"before")
        blob_id = store.put(buffer)
        buffer[:] = b"after!"
        assert store.get(blob_id) == b"before"

    def test_empty_blob_is_stored(self, store: BlobStore) -> None:
        assert not store.has(EMPTY_ID)
        assert store.put(b"") == EMPTY_ID
        assert store.get(EMPTY_ID) == b""
        assert list(store.chunks(EMPTY_ID)) == []
        assert store.get_range(EMPTY_ID, 0, 10) == b""
        assert store.usage() == BlobUsage(1, 0)

    def test_absent_blob_raises_not_found(self, store: BlobStore) -> None:
        store.put(b"another")
        assert not store.has(ABSENT)
        assert store.delete(ABSENT) is False
        reads: list[Callable[[], object]] = [
            lambda: store.get(ABSENT),
            lambda: store.size(ABSENT),
            lambda: store.get_range(ABSENT, 0, 1),
            lambda: list(store.chunks(ABSENT)),
        ]
        for read in reads:
            with pytest.raises(NotFound, match=ABSENT):
                read()

    @pytest.mark.parametrize("malformed", MALFORMED)
    def test_malformed_id_is_refused_by_every_call(self, store: BlobStore, malformed: str) -> None:
        calls: list[Callable[[str], object]] = [
            store.get,
            store.size,
            store.has,
            store.delete,
            store.chunks,
            lambda blob_id: store.get_range(blob_id, 0, 1),
        ]
        for call in calls:
            with pytest.raises(ContentError, match="not a content id"):
                call(malformed)

    def test_failing_stream_stores_nothing(self, store: BlobStore) -> None:
        def broken() -> Iterator[bytes]:
            yield make_data(limits.BLOB_CHUNK_BYTES + 10)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.put_stream(broken())
        assert store.usage() == BlobUsage(0, 0)
        assert list(store.ids()) == []

    @pytest.mark.parametrize("wrong", ["text", 7, None, [b"list"], memoryview(b"abcd")[::2]])
    def test_put_accepts_only_bytes(self, store: BlobStore, wrong: object) -> None:
        with pytest.raises(InvalidInput):
            store.put(wrong)  # type: ignore[arg-type]
        assert store.usage() == BlobUsage(0, 0)

    def test_put_stream_accepts_only_streams_of_bytes(self, store: BlobStore) -> None:
        not_bytes = ("text", b"bytes", bytearray(b"x"), 7, None, ["text"], [7])
        for wrong in (*not_bytes, io.StringIO("text"), io.StringIO(""), NothingYet()):
            with pytest.raises(InvalidInput):
                store.put_stream(wrong)  # type: ignore[arg-type]
            assert store.usage() == BlobUsage(0, 0)

    def test_blob_over_the_limit_is_refused(self, store: BlobStore) -> None:
        store.max_bytes = 1000
        with pytest.raises(InvalidInput, match="more than 1000 bytes"):
            store.put(make_data(1001))
        with pytest.raises(InvalidInput, match="more than 1000 bytes"):
            store.put_stream(make_data(100) for _ in range(11))
        assert store.usage() == BlobUsage(0, 0)
        assert store.get(store.put(make_data(1000))) == make_data(1000)
        assert store.put_stream([make_data(1000)]) == content_id(make_data(1000))

    def test_endless_stream_is_refused(self, store: BlobStore) -> None:
        store.max_bytes = 100_000
        with pytest.raises(InvalidInput, match="more than 100000 bytes"):
            store.put_stream(iter(lambda: b"x" * 1000, None))

    def test_range_ends_at_the_end_of_the_blob(self, store: BlobStore) -> None:
        data = make_data(1000)
        blob_id = store.put(data)
        for start, length in [
            *((0, 0), (0, 1), (0, 1000), (0, 2000), (999, 1), (999, 5)),
            *((500, 100), (1000, 1), (1001, 5), (10**12, 10), (0, 10**15)),
        ]:
            assert store.get_range(blob_id, start, length) == data[start : start + length]
        wrong: list[tuple[Any, Any]] = [(-1, 1), (0, -1), ("0", 1), (0, 1.5)]
        for start, length in wrong:
            with pytest.raises(InvalidInput):
                store.get_range(blob_id, start, length)

    def test_chunks_yield_the_bytes_in_order(self, store: BlobStore) -> None:
        data = make_data(1000)
        blob_id = store.put(data)
        for step in (1, 7, 100, 999, 1000, 1001):
            pieces = list(store.chunks(blob_id, step))
            assert b"".join(pieces) == data
            assert all(len(piece) == step for piece in pieces[:-1])
        for step in (0, -1):
            with pytest.raises(InvalidInput):
                store.chunks(blob_id, step)

    def test_abandoned_reads_do_no_harm(self, store: BlobStore) -> None:
        blob_id = store.put(make_data(1000))
        for _ in range(20):
            next(iter(store.chunks(blob_id, 10)))
            next(iter(store.ids()))
        assert store.get(blob_id) == make_data(1000)

    def test_ids_are_sorted_and_complete(self, store: BlobStore) -> None:
        expected = sorted(store.put(b"blob %d" % number) for number in range(30))
        assert list(store.ids()) == expected
        assert store.usage() == BlobUsage(30, sum(len(b"blob %d" % number) for number in range(30)))

    def test_blobs_may_be_deleted_while_listed(self, store: BlobStore) -> None:
        for number in range(10):
            store.put(b"blob %d" % number)
        assert all(store.delete(blob_id) for blob_id in store.ids())
        assert list(store.ids()) == []

    def test_deleted_blob_can_be_put_again(self, store: BlobStore) -> None:
        blob_id = store.put(b"here")
        other = store.put(b"stays")
        assert store.delete(blob_id) is True
        assert store.delete(blob_id) is False
        assert not store.has(blob_id)
        assert list(store.ids()) == [other]
        assert store.put(b"here") == blob_id
        assert store.get(blob_id) == b"here"

    def test_damaged_bytes_are_never_returned(self, store: BlobStore) -> None:
        data = make_data(1000)
        blob_id = store.put(data)
        for wrong in (b"x" + data[1:], data[:-1], data + b"x"):
            self.damage(store, blob_id, wrong)
            with pytest.raises(CorruptData, match=blob_id):
                store.get(blob_id)
            received: list[bytes] = []
            with pytest.raises(CorruptData, match=blob_id):
                received.extend(store.chunks(blob_id, 100))
            assert sum(map(len, received)) < len(wrong)

    def test_put_repairs_a_torn_blob(self, store: BlobStore) -> None:
        data = make_data(1000)
        blob_id = store.put(data)
        for torn in (b"", data[:500]):
            self.damage(store, blob_id, torn)
            assert store.put(data) == blob_id
            assert store.get(blob_id) == data
            self.damage(store, blob_id, torn)
            assert store.put_stream([data]) == blob_id
            assert store.get(blob_id) == data

    def test_sweep_never_deletes_a_blob(self, store: BlobStore) -> None:
        blob_id = store.put(b"stays")
        store.sweep(0)
        store.sweep()
        assert store.get(blob_id) == b"stays"
        for age in (-1, float("nan"), float("inf")):
            with pytest.raises(InvalidInput):
                store.sweep(age)

    def test_threads_put_equal_and_different_blobs(self, store: BlobStore) -> None:
        failures: list[BaseException] = []
        shared = [b"shared %d" % number * 100 for number in range(5)]

        def work(own: int) -> None:
            try:
                for number, data in enumerate(shared):
                    assert store.get(store.put(data)) == data
                    mine = b"own %d %d" % (own, number)
                    assert store.get(store.put_stream([mine])) == mine
            except BaseException as error:  # noqa: BLE001 - carried to the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(own,)) for own in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.usage().count == 5 + 6 * 5

    def test_any_sequence_of_calls_matches_a_dict(self, store: BlobStore) -> None:
        class Machine(BlobMachine):
            def __init__(self) -> None:
                super().__init__(store)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=30,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


class NothingYet:
    """A non-blocking source: None means that no data is available now, not the end."""

    def read(self, _size: int) -> bytes | None:
        """Return None, as a source that has no bytes yet."""
        return None


class BlobMachine(RuleBasedStateMachine):
    """A blob store compared with a dict from id to bytes."""

    known = Bundle("known")

    def __init__(self, store: BlobStore) -> None:
        super().__init__()
        self.store = store
        self.model: dict[str, bytes] = {}
        for blob_id in store.ids():
            store.delete(blob_id)

    @rule(target=known, data=st.binary(max_size=50))
    def put(self, data: bytes) -> str:
        """Put bytes."""
        blob_id = self.store.put(data)
        self.model[blob_id] = data
        return blob_id

    @rule(target=known, pieces=st.lists(st.binary(max_size=20), max_size=4))
    def put_stream(self, pieces: list[bytes]) -> str:
        """Put bytes in pieces."""
        blob_id = self.store.put_stream(iter(pieces))
        self.model[blob_id] = b"".join(pieces)
        return blob_id

    @rule(target=known, data=st.binary(max_size=5))
    def name(self, data: bytes) -> str:
        """Return the id of bytes without putting them."""
        return content_id(data)

    @rule(blob_id=known)
    def delete(self, blob_id: str) -> None:
        """Delete a blob."""
        assert self.store.delete(blob_id) == (self.model.pop(blob_id, None) is not None)

    @rule(blob_id=known, start=st.integers(0, 60), length=st.integers(0, 60))
    def read(self, blob_id: str, start: int, length: int) -> None:
        """Read a range of a blob."""
        data = self.model.get(blob_id)
        assert self.store.has(blob_id) == (data is not None)
        if data is None:
            with pytest.raises(NotFound):
                self.store.get(blob_id)
            return
        assert self.store.get(blob_id) == data
        assert self.store.size(blob_id) == len(data)
        assert b"".join(self.store.chunks(blob_id, 7)) == data
        assert self.store.get_range(blob_id, start, length) == data[start : start + length]

    @rule()
    def sweep(self) -> None:
        """Sweep temporary files, of which there are none."""
        assert self.store.sweep(0) == 0

    @invariant()
    def matches_the_dict(self) -> None:
        """Compare the ids of the store with those of the dict."""
        assert list(self.store.ids()) == sorted(self.model)
        total = sum(map(len, self.model.values()))
        assert self.store.usage() == BlobUsage(len(self.model), total)


def make_data(size: int) -> bytes:
    """Return bytes of this size without repeated sections."""
    return b"".join(b"%08x" % at for at in range(size // 8 + 1))[:size]
