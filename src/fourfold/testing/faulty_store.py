"""Deterministic faults in front of any store, for tests of whatever must survive a broken one.

A plan decides for each call, from its number alone, whether it goes wrong and how:

- FAIL: an error before the effect; nothing happened.
- TIME_OUT: the effect, then an error; the caller cannot know that the write is there.
- TEAR: a write leaves only a prefix of its bytes under the key, as a broken store would, then an
  error. A local folder does not tear objects: there, a temp file is left behind and the key is
  untouched. Other calls than put and upload have nothing to tear, and fail.
"""

from __future__ import annotations

import enum
import hashlib
import threading
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from fourfold.errors import InvalidInput, ObjectStoreError
from fourfold.objects.folder import FolderStore
from fourfold.objects.protocol import Handle
from fourfold.objects.validation import check_data, check_key, checked_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fourfold.objects.protocol import Data, Object, ObjectInfo, ObjectStore

T = TypeVar("T")


class Fault(enum.Enum):
    FAIL = "fail"
    TIME_OUT = "time_out"
    TEAR = "tear"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its number among all calls and among those of its op, each from 1."""

    number: int
    op: str
    op_number: int
    key: str


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault that was injected, and the call that it hit."""

    call: Call
    fault: Fault


Plan: TypeAlias = "Callable[[Call], Fault | None]"


def every(n: int, fault: Fault, *, op: str | None = None) -> Plan:
    """Every n-th call goes wrong; with `op`, every n-th call of that name."""
    if n < 1:
        raise InvalidInput(f"n is {n}, not a positive number of calls")

    def choose(call: Call) -> Fault | None:
        if op is None:
            return fault if call.number % n == 0 else None
        return fault if call.op == op and call.op_number % n == 0 else None

    return choose


def at(faults: Mapping[int, Fault], *, op: str | None = None) -> Plan:
    """Exactly these calls go wrong, by number; with `op`, by number among calls of that name."""

    def choose(call: Call) -> Fault | None:
        if op is None:
            return faults.get(call.number)
        return faults.get(call.op_number) if call.op == op else None

    return choose


def seeded(seed: int, *, rate: float, faults: Iterable[Fault] = tuple(Fault)) -> Plan:
    """Calls go wrong at this rate, the same ones for the same seed, whatever their op or thread."""
    choices = tuple(faults)
    if not choices or not 0 <= rate <= 1:
        raise InvalidInput(f"rate is {rate}, not 0 to 1, or there are no faults to choose from")

    def choose(call: Call) -> Fault | None:
        digest = hashlib.blake2b(f"{seed}:{call.number}".encode(), digest_size=16).digest()
        if int.from_bytes(digest[:8], "big") >= rate * 2**64:
            return None
        return choices[int.from_bytes(digest[8:], "big") % len(choices)]

    return choose


def first_of(*plans: Plan) -> Plan:
    """The fault of the first plan that has one for the call."""

    def choose(call: Call) -> Fault | None:
        return next((fault for plan in plans if (fault := plan(call)) is not None), None)

    return choose


class FaultyStore(Handle):
    """An ObjectStore that does what another one does, except where its plan says otherwise."""

    def __init__(self, inner: ObjectStore, plan: Plan) -> None:
        super().__init__(f"faults before {inner!r}")
        self._inner = inner
        self._plan = plan
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._injected: list[Injection] = []

    @property
    def injected(self) -> tuple[Injection, ...]:
        """What went wrong so far, in the order of the calls."""
        with self._lock:
            return tuple(self._injected)

    def _decide(self, op: str, key: str, *, can_tear: bool = False) -> Injection | None:
        with self._lock:
            self._calls[op] += 1
            call = Call(self._calls.total(), op, self._calls[op], key)
            fault = self._plan(call)
            if fault is None:
                return None
            if fault is Fault.TEAR and not can_tear:
                fault = Fault.FAIL
            self._injected.append(Injection(call, fault))
            return self._injected[-1]

    def _run(self, op: str, key: str, effect: Callable[[], T]) -> T:
        injection = self._decide(op, key)
        return _after(effect, injection)

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        injection = self._decide("put", key, can_tear=True)
        if injection is not None and injection.fault is Fault.TEAR:
            flat = check_data(data)
            part = flat[: len(flat) // 2]
            if not self._left_temp_file(key, part):
                self._inner.put(key, part, if_absent=if_absent, if_version=if_version)
            raise _error(injection)
        return _after(
            lambda: self._inner.put(key, data, if_absent=if_absent, if_version=if_version),
            injection,
        )

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        injection = self._decide("upload", key, can_tear=True)
        if injection is not None and injection.fault is Fault.TEAR:
            first = next(checked_chunks(chunks), memoryview(b""))
            part = first[: len(first) // 2]
            if not self._left_temp_file(key, part):
                self._inner.upload(key, (part,), if_absent=if_absent)
            raise _error(injection)
        return _after(lambda: self._inner.upload(key, chunks, if_absent=if_absent), injection)

    def _left_temp_file(self, key: str, part: bytes | memoryview) -> bool:
        if not isinstance(self._inner, FolderStore):
            return False
        check_key(key)
        folder = self._inner.temp_folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / uuid.uuid4().hex).write_bytes(part)
        return True

    def get(self, key: str) -> Object:
        return self._run("get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._run("get_range", key, lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo | None:
        return self._run("head", key, lambda: self._inner.head(key))

    def delete(self, key: str) -> bool:
        return self._run("delete", key, lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        asked = list(keys)
        self._run("delete_many", ",".join(asked), lambda: self._inner.delete_many(asked))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        injection = self._decide("list", prefix)
        return _steps(self._inner.list(prefix, start_after=start_after), injection)

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        injection = self._decide("read", key)
        return _steps(self._inner.read(key, chunk_bytes), injection)

    def close(self) -> None:
        super().close()
        self._inner.close()


def _after(effect: Callable[[], T], injection: Injection | None) -> T:
    if injection is None:
        return effect()
    if injection.fault is Fault.TIME_OUT:
        effect()
    raise _error(injection)


def _steps(found: Iterator[T], injection: Injection | None) -> Iterator[T]:
    """A listing or a read fails before its first step, or times out after its last."""
    if injection is None or injection.fault is Fault.TIME_OUT:
        yield from found
    if injection is not None:
        raise _error(injection)


def _error(injection: Injection) -> ObjectStoreError:
    call = injection.call
    return ObjectStoreError(
        f"injected fault {injection.fault.value!r} in call {call.number}, {call.op} {call.key!r}",
        hint="A fault of the test plan, not of the store.",
    )
