"""Contract of an object store, as tests that every backend inherits.

    class TestMyStore(ObjectStoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path / uuid.uuid4().hex)

`make_store` returns a function that opens a new, empty store at every call. Class attributes state
where a backend may promise less.
"""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fourfold import limits
from fourfold.errors import AlreadyExists, Closed, InvalidInput, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fourfold.objects import Data, ObjectInfo, ObjectStore


ODD_KEYS = (
    "with space",
    " leading and trailing ",
    "percent%20sign",
    "100%",
    "%2e%2e",
    "a+b",
    "hash#tag",
    "why?",
    "did:key:z6Mk",
    "a&b=c;d,e",
    "quote'\"`",
    "<tag>&amp;",
    "[x]{y}(z)*|^~!$@",
    "...",
    ".hidden",
    "-dash",
    "dir/.hidden/file.",
    "+",
    "%",
    "ünï/cödé",
    "日本/語",
    "emoji 😀",
    "e\u0301",
    "\u00e9",
    "Upper/CASE",
    "upper/case",
    "zero\u200bwidth",
    "x" * 255,
    "y" * 80,
    "y" * 80 + "/below",
    "y" * 79,
    "y" * 81,
    "é" * 127,
    "/".join(["k" * 255] * 4),
    "/".join(["d"] * 256),
)

BAD_KEYS = (
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/./b",
    "a/..",
    "../a",
    "a\\b",
    "nul\0",
    "new\nline",
    "del\x7f",
    "c1\x85",
    "\ud800",
    "non\uffff",
    "x" * 256,
    "/".join(["k" * 250] * 5),
)

# Few keys, adjacent in key order or on a file system, so that operations of a history collide.
KEYS = st.sampled_from(
    [
        "a",
        "a/b",
        "a/b/c",
        "a!",
        "a0",
        "A",
        "e\u0301",
        "é",
        "a b",
        "z" * 80,
        "z" * 80 + "/x",
        "z" * 81,
    ]
)
PREFIXES = st.sampled_from(
    ["", "a", "a/", "a/b", "a!", "A", "é", "z", "z" * 80, "z" * 80 + "/", "q"]
)
DATA = st.binary(max_size=20)


def make_machine(
    make_store: Callable[[], ObjectStore], *, versions_never_repeat: bool
) -> type[RuleBasedStateMachine]:
    """Return the state machine of one backend; `make_store` opens a new, empty store."""

    class Bound(ObjectStoreMachine):
        pass

    Bound.make_store = staticmethod(make_store)
    Bound.versions_never_repeat = versions_never_repeat
    return Bound


class ObjectStoreMachine(RuleBasedStateMachine):
    """Random calls on a new store and on a dict; `make_machine` binds it to a backend."""

    make_store: ClassVar[Callable[[], ObjectStore]]
    versions_never_repeat: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make_store()
        self.model: dict[str, tuple[bytes, str]] = {}
        self.used: dict[str, list[str]] = {}

    def record_write(self, key: str, data: bytes, info: ObjectInfo) -> None:
        """Record an object that the store has accepted."""
        assert (info.key, info.size) == (key, len(data))
        if self.versions_never_repeat:
            assert info.version not in self.used.get(key, [])
        self.model[key] = (data, info.version)
        self.used.setdefault(key, []).append(info.version)

    @rule(key=KEYS, data=DATA)
    def put(self, key: str, data: bytes) -> None:
        """Put an object."""
        self.record_write(key, data, self.store.put(key, data))

    @rule(key=KEYS, data=DATA, streamed=st.booleans())
    def put_if_absent(self, key: str, data: bytes, *, streamed: bool) -> None:
        """Put an object unless its key exists."""
        try:
            if streamed:
                info = self.store.upload(key, [data[:3], data[3:]], if_absent=True)
            else:
                info = self.store.put(key, data, if_absent=True)
        except AlreadyExists:
            assert key in self.model
        else:
            assert key not in self.model
            self.record_write(key, data, info)

    @rule(key=KEYS, data=DATA, choice=st.integers(min_value=0))
    def put_if_version(self, key: str, data: bytes, choice: int) -> None:
        """Put an object in place of a known version."""
        versions = self.used.get(key, ['"never"'])
        version = versions[-1 - choice % len(versions)]
        current = self.model.get(key)
        try:
            info = self.store.put(key, data, if_version=version)
        except PreconditionFailed:
            assert current is None or current[1] != version
        else:
            assert current is not None
            assert current[1] == version
            self.record_write(key, data, info)

    @rule(key=KEYS, data=DATA)
    def upload(self, key: str, data: bytes) -> None:
        """Put an object by an upload in parts."""
        self.record_write(key, data, self.store.upload(key, [data]))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        """Delete an object."""
        assert self.store.delete(key) == (self.model.pop(key, None) is not None)

    @rule(keys=st.lists(KEYS, max_size=3))
    def delete_many(self, keys: list[str]) -> None:
        """Delete several objects."""
        self.store.delete_many(keys)
        for key in keys:
            self.model.pop(key, None)

    @rule(key=KEYS, start=st.integers(0, 25), length=st.integers(0, 25))
    def read_object(self, key: str, start: int, length: int) -> None:
        """Read an object, and a range of it."""
        info = self.store.head(key)
        if key not in self.model:
            assert info is None
            for call in (self.store.get, lambda key: self.store.get_range(key, start, length)):
                try:
                    call(key)
                except NotFound:
                    continue
                raise AssertionError(f"{key!r} was deleted or never written")
            return
        data, version = self.model[key]
        result = self.store.get(key)
        assert info is not None
        assert (result.data, result.info.version, info.version) == (data, version, version)
        assert self.store.get_range(key, start, length) == data[start : start + length]
        assert b"".join(self.store.read(key, max(1, length))) == data

    @rule(prefix=PREFIXES, after=st.none() | KEYS)
    def list_some(self, prefix: str, after: str | None) -> None:
        """List the keys of a prefix, after one of them."""
        expected = [
            (key, len(self.model[key][0]), self.model[key][1])
            for key in sorted(self.model, key=str.encode)
            if key.startswith(prefix) and (after is None or key > after)
        ]
        result = self.store.list(prefix, start_after=after)
        assert [(info.key, info.size, info.version) for info in result] == expected

    @invariant()
    def same_keys(self) -> None:
        """Compare the keys of the store with those of the dict."""
        result = [info.key for info in self.store.list()]
        assert result == sorted(self.model, key=str.encode)

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()


T = TypeVar("T")
THREADS = 8


class ObjectStoreContract:
    """Requirements of every backend."""

    versions_never_repeat: ClassVar[bool] = True
    """True if a version changes with every write, even of equal bytes."""
    uploads_in_bounded_memory: ClassVar[bool] = True
    """True if an upload may be larger than memory."""
    keys_to_list: ClassVar[int] = 2_100
    """Number of keys that the paging test writes; more than two pages."""
    histories: ClassVar[int] = 25
    """Number of random histories that are compared with the model."""

    @pytest.fixture
    def make_store(self) -> Callable[[], ObjectStore]:
        """Return a function that opens an empty store; a subclass overrides this fixture."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: Callable[[], ObjectStore]) -> Iterator[ObjectStore]:
        """Yield an empty store, and close it."""
        with make_store() as opened:
            yield opened

    def test_get_returns_what_was_put(self, store: ObjectStore) -> None:
        before = datetime.now(UTC) - timedelta(seconds=2)
        info = store.put("a/b.bin", b"hello")
        assert (info.key, info.size) == ("a/b.bin", 5)
        result = store.get("a/b.bin")
        assert result.data == b"hello"
        assert type(result.data) is bytes
        for seen in (result.info, store.head("a/b.bin"), *store.list()):
            assert seen is not None
            assert (seen.key, seen.size, seen.version) == ("a/b.bin", 5, info.version)
            assert before <= seen.modified <= datetime.now(UTC) + timedelta(seconds=2)

    def test_empty_object_is_stored(self, store: ObjectStore) -> None:
        info = store.put("empty", b"")
        assert store.get("empty").data == b""
        assert store.head("empty") is not None
        assert store.get_range("empty", 0, 10) == b""
        assert list(store.read("empty", 10)) == []
        assert [(result.key, result.size) for result in store.list()] == [("empty", 0)]
        assert store.put("empty", b"x", if_version=info.version).size == 1

    def test_absent_object_differs_from_an_empty_one(self, store: ObjectStore) -> None:
        assert store.head("absent") is None
        with pytest.raises(NotFound, match="absent"):
            store.get("absent")
        for length in (0, 1):
            with pytest.raises(NotFound):
                store.get_range("absent", 0, length)
        with pytest.raises(NotFound):
            next(store.read("absent", 1))
        assert list(store.list()) == []
        assert store.delete("absent") is False

    def test_put_accepts_any_flat_buffer(self, store: ObjectStore) -> None:
        buffer = bytearray(b"abcdef")
        store.put("buffer", buffer)
        store.put("view", memoryview(buffer)[2:4])
        buffer[:] = b"xxxxxx"
        assert store.get("buffer").data == b"abcdef"
        assert store.get("view").data == b"cd"

    @pytest.mark.parametrize("data", ["text", None, 7, ["list"]])
    def test_put_refuses_other_types_and_writes_nothing(
        self, store: ObjectStore, data: object
    ) -> None:
        with pytest.raises(InvalidInput):
            store.put("k", data)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            store.upload("k", [b"fine", data])  # type: ignore[list-item]
        with pytest.raises(InvalidInput):
            store.upload("k", b"bytes are not chunks")  # type: ignore[arg-type]
        assert list(store.list()) == []

    def test_plain_put_replaces(self, store: ObjectStore) -> None:
        first = store.put("k", b"one")
        second = store.put("k", b"two!")
        assert first.version != second.version
        assert store.get("k").data == b"two!"
        assert [info.size for info in store.list()] == [4]

    def test_put_if_absent_never_replaces(self, store: ObjectStore) -> None:
        store.put("k", b"one", if_absent=True)
        with pytest.raises(AlreadyExists, match="k"):
            store.put("k", b"two", if_absent=True)
        assert store.get("k").data == b"one"
        store.delete("k")
        store.put("k", b"three", if_absent=True)
        assert store.get("k").data == b"three"

    def test_put_if_version_requires_the_current_version(self, store: ObjectStore) -> None:
        first = store.put("k", b"one")
        second = store.put("k", b"two", if_version=first.version)
        with pytest.raises(PreconditionFailed, match="k"):
            store.put("k", b"three", if_version=first.version)
        assert store.get("k").data == b"two"
        assert store.get("k").info.version == second.version
        with pytest.raises(PreconditionFailed):
            store.put("k", b"three", if_version="no-such-version")

    def test_put_if_version_of_a_deleted_object_is_refused(self, store: ObjectStore) -> None:
        info = store.put("k", b"one")
        store.delete("k")
        with pytest.raises(PreconditionFailed):
            store.put("k", b"two", if_version=info.version)
        with pytest.raises(PreconditionFailed):
            store.put("never", b"two", if_version=info.version)
        assert list(store.list()) == []

    def test_contradicting_conditions_are_refused(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidInput):
            store.put("k", b"", if_absent=True, if_version="v")
        with pytest.raises(InvalidInput):
            store.put("k", b"", if_version="")
        assert store.head("k") is None

    def test_versions_never_repeat(self, store: ObjectStore) -> None:
        if not self.versions_never_repeat:
            pytest.skip("the versions of this backend depend on the bytes alone")
        seen: list[str] = []
        for data in (b"A", b"B", b"A", b"A"):
            seen.extend(store.put("k", data).version for _ in range(5))
            store.delete("k")
            seen.append(store.upload("k", [data]).version)
        assert len(set(seen)) == len(seen)
        current = store.head("k")
        assert current is not None
        assert current.version == seen[-1]

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 10, b"0123456789"),
            (3, 4, b"3456"),
            (0, 0, b""),
            (9, 1, b"9"),
            (9, 100, b"9"),
            (8, 1 << 70, b"89"),
            (10, 1, b""),
            (11, 5, b""),
            (1 << 70, 5, b""),
        ],
    )
    def test_range_ends_at_the_end_of_the_object(
        self, store: ObjectStore, start: int, length: int, expected: bytes
    ) -> None:
        store.put("k", b"0123456789")
        assert store.get_range("k", start, length) == expected

    def test_invalid_range_or_chunk_size_is_refused(self, store: ObjectStore) -> None:
        store.put("k", b"0123456789")
        for start, length in ((-1, 5), (0, -5), (-1, -1)):
            with pytest.raises(InvalidInput):
                store.get_range("k", start, length)
        for chunk_bytes in (0, -1):
            with pytest.raises(InvalidInput):
                store.read("k", chunk_bytes)

    def test_delete_returns_true_if_the_object_existed(self, store: ObjectStore) -> None:
        store.put("k", b"one")
        store.put("k/below", b"two")
        assert store.delete("k") is True
        assert store.delete("k") is False
        assert store.get("k/below").data == b"two"

    def test_delete_many_deletes_exactly_the_named_objects(self, store: ObjectStore) -> None:
        for key in ("a", "a/b", "c/d", "e"):
            store.put(key, b"x")
        store.delete_many(iter(["a", "absent", "c/d", "a"]))
        assert [info.key for info in store.list()] == ["a/b", "e"]
        store.delete_many([])
        with pytest.raises(InvalidInput):
            store.delete_many(["e", "bad//key"])
        assert store.head("e") is not None

    def test_object_and_folder_may_share_a_name(self, store: ObjectStore) -> None:
        keys = ["a", "a/b", "a/b/c", "a/b/c/d", "a+", "a+/b", "a%", "a.tmp"]
        for key in keys:
            store.put(key, key.encode(), if_absent=True)
        assert {info.key: store.get(info.key).data for info in store.list()} == {
            key: key.encode() for key in keys
        }
        for key in reversed(keys):
            assert store.delete(key) is True
        assert list(store.list()) == []

    def test_odd_keys_are_stored_exactly(self, store: ObjectStore) -> None:
        keys = [key for key in ODD_KEYS if self.accepts(key)]
        for key in keys:
            store.put(key, key.encode(), if_absent=True)
        assert [info.key for info in store.list()] == sorted(keys, key=str.encode)
        for key in keys:
            result = store.get(key)
            assert (result.data, result.info.key) == (key.encode(), key)
            assert [info.key for info in store.list(key)][0] == key  # noqa: RUF015
            assert key not in {info.key for info in store.list(start_after=key)}
        store.delete_many(keys)
        assert list(store.list()) == []

    def accepts(self, key: str) -> bool:
        """Return True if a key fits; a backend with a prefix of its own may refuse the longest."""
        return len(key) <= limits.OBJECT_KEY_BYTES_MAX

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_bad_key_is_refused_by_every_call(self, store: ObjectStore, key: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.put(key, b""),
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.head(key),
            lambda: store.delete(key),
            lambda: store.delete_many([key]),
            lambda: store.upload(key, [b""]),
            lambda: store.read(key, 1),
        ]
        for call in calls:
            with pytest.raises(InvalidInput):
                call()

    def test_prefix_is_a_plain_string(self, store: ObjectStore) -> None:
        keys = ["log", "log!", "log/1", "log/10", "log/2", "log2/1", "logs", "loh", "Log/1", "lo/g"]
        for key in keys:
            store.put(key, b"")
        everything = sorted(keys)
        for prefix in ("", "l", "log", "log/", "log/1", "logs", "log2", "lo", "x", "L", "log/1/"):
            expected = [key for key in everything if key.startswith(prefix)]
            assert [info.key for info in store.list(prefix)] == expected, prefix
            for after in ("a", "log", "log/", "log/1", "log/.", "log/..", "loh", "zz"):
                tail = [info.key for info in store.list(prefix, start_after=after)]
                assert tail == [key for key in expected if key > after], (prefix, after)

    @pytest.mark.parametrize("prefix", ["/", "a//", "./", "a/../b", "x\0", "back\\slash", "\ud800"])
    def test_impossible_prefix_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidInput):
            store.list(prefix)
        with pytest.raises(InvalidInput):
            store.list(start_after=prefix)

    def test_long_listing_is_ordered_without_gaps_or_duplicates(self, store: ObjectStore) -> None:
        keys = [
            f"n/{number:05d}{'/x' if number % 7 == 0 else ''}"
            for number in range(self.keys_to_list)
        ]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda key: store.put(key, b""), ["a", *reversed(keys), "z"]))
        assert [info.key for info in store.list("n/")] == keys
        assert [info.key for info in store.list()] == ["a", *keys, "z"]
        assert [info.key for info in store.list("n", start_after=keys[1_000])] == keys[1_001:]
        assert [info.key for info in store.list("n/010")] == [
            key for key in keys if key.startswith("n/010")
        ]
        # A listing continues when keys before or after its position are deleted.
        listing = store.list("n/")
        passed = [next(listing).key for _ in range(10)]
        store.delete_many([*passed, keys[-1]])
        rest = [info.key for info in listing]
        assert rest[: len(keys) - 11] == keys[10:-1]

    def test_upload_joins_its_chunks(self, store: ObjectStore) -> None:
        pieces: list[Data] = [b"a" * 3, b"", bytearray(b"b" * 5), memoryview(b"c" * 7)]
        info = store.upload("k", iter(pieces))
        assert info.size == 15
        assert store.get("k").data == b"aaabbbbbccccccc"
        assert store.upload("none", []).size == 0
        assert store.get("none").data == b""
        with pytest.raises(AlreadyExists):
            store.upload("k", [b"again"], if_absent=True)
        assert store.put("k", b"next", if_version=info.version).size == 4

    @pytest.mark.parametrize("if_absent", [False, True])
    def test_large_upload_is_stored_completely(
        self, store: ObjectStore, *, if_absent: bool
    ) -> None:
        block = bytes(range(256)) * 4_096
        blocks = 20
        info = store.upload("big", (block for _ in range(blocks)), if_absent=if_absent)
        assert info.size == blocks * len(block)
        head = store.head("big")
        assert head is not None
        assert (head.size, head.version) == (info.size, info.version)
        assert all(chunk == block for chunk in store.read("big", len(block)))
        assert store.get("big").data == block * blocks
        assert store.get_range("big", 10 * len(block) - 1, 3) == b"\xff\x00\x01"
        assert {len(chunk) for chunk in store.read("big", 3 << 20)} == {3 << 20, 2 << 20}
        if if_absent:
            with pytest.raises(AlreadyExists):
                store.upload("big", (b"x" * len(block) for _ in range(blocks)), if_absent=True)
        assert store.put("big", b"small", if_version=info.version).size == 5

    @pytest.mark.parametrize("if_absent", [False, True])
    def test_upload_holds_only_a_few_chunks(self, store: ObjectStore, *, if_absent: bool) -> None:
        if not self.uploads_in_bounded_memory:
            pytest.skip("this backend keeps its objects in memory")
        size = 56 * limits.MIB
        allowed = limits.OBJECT_UPLOAD_CHUNK_BYTES * (limits.OBJECT_UPLOAD_CONCURRENCY + 2)
        tracemalloc.start()
        try:
            chunks = (bytes(limits.MIB) for _ in range(size // limits.MIB))
            assert store.upload("big", chunks, if_absent=if_absent).size == size
            assert tracemalloc.get_traced_memory()[1] < allowed < size
            tracemalloc.reset_peak()
            assert sum(len(chunk) for chunk in store.read("big", limits.MIB)) == size
            assert tracemalloc.get_traced_memory()[1] < allowed
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("blocks", [1, 20])
    @pytest.mark.parametrize("if_absent", [False, True])
    def test_upload_writes_nothing_when_its_source_fails(
        self, store: ObjectStore, blocks: int, *, if_absent: bool
    ) -> None:
        def source() -> Iterator[bytes]:
            for _ in range(blocks):
                yield b"x" * limits.MIB
            raise FileNotFoundError("the source went away")

        store.put("old", b"old")
        with pytest.raises(FileNotFoundError, match="the source went away"):
            store.upload("new", source(), if_absent=if_absent)
        if not if_absent:
            with pytest.raises(FileNotFoundError, match="the source went away"):
                store.upload("old", source())
        assert [(info.key, info.size) for info in store.list()] == [("old", 3)]
        assert store.get("old").data == b"old"

    def test_read_returns_one_version_or_raises(self, store: ObjectStore) -> None:
        block = 3 * limits.MIB
        store.put("k", b"a" * block * 4)
        reading = store.read("k", block)
        got = [next(reading)]
        store.put("k", b"b" * block * 4)
        with suppress(PreconditionFailed):
            got.extend(reading)
        assert set(b"".join(got)) == {ord("a")}
        assert set(store.get("k").data) == {ord("b")}

    def test_one_of_many_puts_if_absent_wins(self, store: ObjectStore) -> None:
        for turn in range(5):
            key = f"race/{turn}"
            won = _race(partial(_try_put, store, key))
            assert sum(won) == 1
            assert store.get(key).data == str(won.index(True)).encode()

    def test_one_of_many_uploads_if_absent_wins(self, store: ObjectStore) -> None:
        won = _race(partial(_try_upload, store, "race"))
        assert sum(won) == 1
        data = store.get("race").data
        assert data == str(won.index(True)).encode() * (9 * limits.MIB)

    def test_counters_lose_no_update(self, store: ObjectStore) -> None:
        steps = 6
        store.put("counter", b"0")

        def count(_: int) -> None:
            for _ in range(steps):
                while True:
                    current = store.get("counter")
                    data = str(int(current.data) + 1).encode()
                    try:
                        store.put("counter", data, if_version=current.info.version)
                    except PreconditionFailed:
                        continue
                    break

        _race(count)
        assert store.get("counter").data == str(THREADS * steps).encode()

    def test_readers_never_see_a_partial_write(self, store: ObjectStore) -> None:
        sizes = (1, 200_000)
        store.put("k", b"x" * sizes[0])
        stop = threading.Event()

        def write() -> None:
            for turn in range(30):
                store.put("k", b"x" * sizes[turn % 2])
            stop.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not stop.is_set() and not writing.done():
                result = store.get("k")
                assert len(result.data) == result.info.size
                assert result.info.size in sizes
            writing.result()

    def test_closed_store_refuses_every_call(self, store: ObjectStore) -> None:
        store.put("k", b"x")
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.put("k", b""),
            lambda: store.get("k"),
            lambda: store.get_range("k", 0, 1),
            lambda: store.head("k"),
            store.list,
            lambda: store.delete("k"),
            lambda: store.delete_many(["k"]),
            lambda: store.upload("k", [b""]),
            lambda: store.read("k", 1),
            store.__enter__,
        ]
        for call in calls:
            with pytest.raises(Closed):
                call()

    def test_any_history_matches_a_dict(self, make_store: Callable[[], ObjectStore]) -> None:
        machine = make_machine(make_store, versions_never_repeat=self.versions_never_repeat)
        run_state_machine_as_test(
            machine,
            settings=settings(max_examples=self.histories, stateful_step_count=25, deadline=None),
        )


def _race(run: Callable[[int], T]) -> list[T]:
    barrier = threading.Barrier(THREADS)

    def start(me: int) -> T:
        barrier.wait()
        return run(me)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


def _try_put(store: ObjectStore, key: str, me: int) -> bool:
    try:
        store.put(key, str(me).encode(), if_absent=True)
    except AlreadyExists:
        return False
    return True


def _try_upload(store: ObjectStore, key: str, me: int) -> bool:
    try:
        store.upload(key, (str(me).encode() * limits.MIB for _ in range(9)), if_absent=True)
    except AlreadyExists:
        return False
    return True
