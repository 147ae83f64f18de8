"""A dict that says what an object store must answer, and a state machine that compares the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fourfold.errors import AlreadyExists, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fourfold.objects import ObjectInfo, ObjectStore

# Few keys, chosen to be neighbours in key order or on a file system, so that histories meet themselves.
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


def machine_against(
    make_store: Callable[[], ObjectStore], *, versions_never_repeat: bool
) -> type[RuleBasedStateMachine]:
    """A state machine that runs random calls on a new store and on a dict."""

    class ObjectStoreMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store = make_store()
            self.model: dict[str, tuple[bytes, str]] = {}
            self.used: dict[str, list[str]] = {}

        def wrote(self, key: str, data: bytes, info: ObjectInfo) -> None:
            assert (info.key, info.size) == (key, len(data))
            if versions_never_repeat:
                assert info.version not in self.used.get(key, [])
            self.model[key] = (data, info.version)
            self.used.setdefault(key, []).append(info.version)

        @rule(key=KEYS, data=DATA)
        def put(self, key: str, data: bytes) -> None:
            self.wrote(key, data, self.store.put(key, data))

        @rule(key=KEYS, data=DATA, streamed=st.booleans())
        def put_if_absent(self, key: str, data: bytes, *, streamed: bool) -> None:
            try:
                if streamed:
                    info = self.store.upload(key, [data[:3], data[3:]], if_absent=True)
                else:
                    info = self.store.put(key, data, if_absent=True)
            except AlreadyExists:
                assert key in self.model
            else:
                assert key not in self.model
                self.wrote(key, data, info)

        @rule(key=KEYS, data=DATA, choice=st.integers(min_value=0))
        def put_if_version(self, key: str, data: bytes, choice: int) -> None:
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
                self.wrote(key, data, info)

        @rule(key=KEYS, data=DATA)
        def upload(self, key: str, data: bytes) -> None:
            self.wrote(key, data, self.store.upload(key, [data]))

        @rule(key=KEYS)
        def delete(self, key: str) -> None:
            assert self.store.delete(key) == (self.model.pop(key, None) is not None)

        @rule(keys=st.lists(KEYS, max_size=3))
        def delete_many(self, keys: list[str]) -> None:
            self.store.delete_many(keys)
            for key in keys:
                self.model.pop(key, None)

        @rule(key=KEYS, start=st.integers(0, 25), length=st.integers(0, 25))
        def look(self, key: str, start: int, length: int) -> None:
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
            found = self.store.get(key)
            assert info is not None
            assert (found.data, found.info.version, info.version) == (data, version, version)
            assert self.store.get_range(key, start, length) == data[start : start + length]
            assert b"".join(self.store.read(key, max(1, length))) == data

        @rule(prefix=PREFIXES, after=st.none() | KEYS)
        def list_some(self, prefix: str, after: str | None) -> None:
            expected = [
                (key, len(self.model[key][0]), self.model[key][1])
                for key in sorted(self.model, key=str.encode)
                if key.startswith(prefix) and (after is None or key > after)
            ]
            found = self.store.list(prefix, start_after=after)
            assert [(info.key, info.size, info.version) for info in found] == expected

        @invariant()
        def same_keys(self) -> None:
            found = [info.key for info in self.store.list()]
            assert found == sorted(self.model, key=str.encode)

        def teardown(self) -> None:
            self.store.close()

    return ObjectStoreMachine
