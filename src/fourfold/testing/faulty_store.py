"""Deterministic faults in front of any object store, for tests of code that must survive them.

A plan decides for each call, by its number alone, whether and how it fails:

- FAIL: an error before the effect; nothing happened.
- TIME_OUT: the effect, then an error; the caller cannot know that the write succeeded.
- TEAR: a write leaves only a prefix of its bytes under the key, as a broken store would, then an
  error. A local folder does not tear objects: there, a temp file remains and the key is
  unchanged. Calls other than put and upload have nothing to tear, and fail.
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
    """A kind of injected failure."""

    FAIL = "fail"
    TIME_OUT = "time_out"
    TEAR = "tear"


@dataclass(frozen=True, slots=True)
class StoreCall:
    """A call: its number among all calls and among those of its operation, each from 1."""

    number: int
    op: str
    op_number: int
    key: str


@dataclass(frozen=True, slots=True)
class Injection:
    """An injected fault, and the call that it affected."""

    call: StoreCall
    fault: Fault


Plan: TypeAlias = "Callable[[StoreCall], Fault | None]"


def every(n: int, fault: Fault, *, op: str | None = None) -> Plan:
    """Return a plan in which every n-th call fails; with `op`, every n-th call of that name."""
    if n < 1:
        raise InvalidInput(f"n: must be 1 or more, got {n}")

    def choose(call: StoreCall) -> Fault | None:
        if op is None:
            return fault if call.number % n == 0 else None
        return fault if call.op == op and call.op_number % n == 0 else None

    return choose


def at(faults: Mapping[int, Fault], *, op: str | None = None) -> Plan:
    """Return a plan in which exactly these calls fail; with `op`, numbered by its calls."""

    def choose(call: StoreCall) -> Fault | None:
        if op is None:
            return faults.get(call.number)
        return faults.get(call.op_number) if call.op == op else None

    return choose


def seeded(seed: int, *, rate: float, faults: Iterable[Fault] = tuple(Fault)) -> Plan:
    """Return a plan in which calls fail at a rate, the same ones for the same seed."""
    choices = tuple(faults)
    if not choices or not 0 <= rate <= 1:
        raise InvalidInput(f"rate: must be 0 to 1, with at least one fault, got {rate}")

    def choose(call: StoreCall) -> Fault | None:
        digest = hashlib.blake2b(f"{seed}:{call.number}".encode(), digest_size=16).digest()
        if int.from_bytes(digest[:8], "big") >= rate * 2**64:
            return None
        return choices[int.from_bytes(digest[8:], "big") % len(choices)]

    return choose


def first_of(*plans: Plan) -> Plan:
    """Return a plan with the fault of the first plan that has one for the call."""

    def choose(call: StoreCall) -> Fault | None:
        return next((fault for plan in plans if (fault := plan(call)) is not None), None)

    return choose


class FaultyStore(Handle):
    """An ObjectStore that forwards to another one, except where its plan has a fault."""

    def __init__(self, inner: ObjectStore, plan: Plan) -> None:
        super().__init__(f"faults before {inner!r}")
        self._inner = inner
        self._plan = plan
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._injected: list[Injection] = []

    def file_path(self, key: str) -> str:
        """Return the path of an object as other programs see it."""
        return self._inner.file_path(key)

    @property
    def injected(self) -> tuple[Injection, ...]:
        """The faults injected so far, in the order of the calls."""
        with self._lock:
            return tuple(self._injected)

    def _decide(self, op: str, key: str, *, can_tear: bool = False) -> Injection | None:
        with self._lock:
            self._calls[op] += 1
            call = StoreCall(self._calls.total(), op, self._calls[op], key)
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
        """Put an object; may fail by the plan."""
        injection = self._decide("put", key, can_tear=True)
        if injection is not None and injection.fault is Fault.TEAR:
            flat = check_data(data)
            part = flat[: len(flat) // 2]
            if not self._leave_temp_file(key, part):
                self._inner.put(key, part, if_absent=if_absent, if_version=if_version)
            raise _error(injection)
        return _after(
            lambda: self._inner.put(key, data, if_absent=if_absent, if_version=if_version),
            injection,
        )

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Upload an object; may fail by the plan."""
        injection = self._decide("upload", key, can_tear=True)
        if injection is not None and injection.fault is Fault.TEAR:
            first = next(checked_chunks(chunks), memoryview(b""))
            part = first[: len(first) // 2]
            if not self._leave_temp_file(key, part):
                self._inner.upload(key, (part,), if_absent=if_absent)
            raise _error(injection)
        return _after(lambda: self._inner.upload(key, chunks, if_absent=if_absent), injection)

    def _leave_temp_file(self, key: str, part: bytes | memoryview) -> bool:
        if not isinstance(self._inner, FolderStore):
            return False
        check_key(key)
        folder = self._inner.temp_folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / uuid.uuid4().hex).write_bytes(part)
        return True

    def get(self, key: str) -> Object:
        """Get an object; may fail by the plan."""
        return self._run("get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Get a range of an object; may fail by the plan."""
        return self._run("get_range", key, lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo | None:
        """Get the info of an object; may fail by the plan."""
        return self._run("head", key, lambda: self._inner.head(key))

    def delete(self, key: str) -> bool:
        """Delete an object; may fail by the plan."""
        return self._run("delete", key, lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects; may fail by the plan."""
        key_list = list(keys)
        self._run("delete_many", ",".join(key_list), lambda: self._inner.delete_many(key_list))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """List objects; may fail by the plan."""
        injection = self._decide("list", prefix)
        return _steps(self._inner.list(prefix, start_after=start_after), injection)

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Read an object in chunks; may fail by the plan."""
        injection = self._decide("read", key)
        return _steps(self._inner.read(key, chunk_bytes), injection)

    def close(self) -> None:
        """Close this store and the inner one."""
        super().close()
        self._inner.close()


def _after(effect: Callable[[], T], injection: Injection | None) -> T:
    if injection is None:
        return effect()
    if injection.fault is Fault.TIME_OUT:
        effect()
    raise _error(injection)


def _steps(items: Iterator[T], injection: Injection | None) -> Iterator[T]:
    """Yield the items; fail before the first, or time out after the last."""
    if injection is None or injection.fault is Fault.TIME_OUT:
        yield from items
    if injection is not None:
        raise _error(injection)


def _error(injection: Injection) -> ObjectStoreError:
    call = injection.call
    return ObjectStoreError(
        f"injected fault {injection.fault.value!r} in call {call.number}, {call.op} {call.key!r}",
        hint="This is a fault of the test plan, not of the store.",
    )
