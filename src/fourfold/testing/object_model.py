"""What object stores are tried with: odd and bad keys, and random histories against a dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fourfold.errors import AlreadyExists, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fourfold.objects import ObjectInfo, ObjectStore

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

# Few keys, chosen to be neighbours in key order or on a file system, so that histories meet
# themselves.
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
    """The state machine of one backend, where `make_store` opens a new, empty store."""

    class Bound(ObjectStoreMachine):
        pass

    Bound.make_store = staticmethod(make_store)
    Bound.versions_never_repeat = versions_never_repeat
    return Bound


class ObjectStoreMachine(RuleBasedStateMachine):
    """Random calls on a new store and on a dict; `machine_against` binds it to a backend."""

    make_store: ClassVar[Callable[[], ObjectStore]]
    versions_never_repeat: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make_store()
        self.model: dict[str, tuple[bytes, str]] = {}
        self.used: dict[str, list[str]] = {}

    def wrote(self, key: str, data: bytes, info: ObjectInfo) -> None:
        assert (info.key, info.size) == (key, len(data))
        if self.versions_never_repeat:
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
