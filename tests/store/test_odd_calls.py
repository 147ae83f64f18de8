"""Odd arguments of every public method are refused with a typed error, and write nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

import fourfold
from fourfold.arguments import check_arguments, fits
from fourfold.errors import FourfoldError, InvalidInput

sys.path.insert(0, str(Path(__file__).parent))

import odd_calls


class Target:
    """A filled store, and instances of its facades, which are opened again when they are lost."""

    def __init__(self, folder):
        self._folder = folder
        self._count = 0
        self._store = None
        self._instances = {}
        self.reopen()

    def reopen(self):
        self.close()
        self._count += 1
        root = self._folder / str(self._count)
        self._store = fourfold.open(root)
        odd_calls.fill(self._store)
        self._versions = odd_calls.Versions(root)
        self._instances.clear()

    def close(self):
        if self._store is not None:
            self._versions.close()
            self._store.close()

    def instance(self, facade):
        if facade not in self._instances:
            self._instances[facade] = facade.instance(self._store)
        return self._instances[facade]

    def problem(self, facade, name, arguments):
        """Return what is wrong with the outcome of a call, or an empty text."""
        instance = self.instance(facade)
        before = self._versions.read()
        try:
            odd_calls.run(getattr(instance, name), arguments)
        except FourfoldError as error:
            if not error.hint:
                return f"no hint: {error}"
            return "wrote something" if self._versions.read() != before else ""
        except Exception as error:  # noqa: BLE001 - any other error is the problem
            return f"{type(error).__name__}: {error}"
        if name in odd_calls.ENDS:
            self.reopen()
        return ""


def problems_of_calls(title, target, values):
    facade = odd_calls.FACADES[title]
    problems = []
    for name in odd_calls.methods(facade):
        for odd, arguments in odd_calls.calls(facade, name, values):
            if problem := target.problem(facade, name, arguments):
                problems.append(f"{title}.{name}({odd}={arguments[odd]!r:.40}): {problem:.200}")
    return problems


@pytest.fixture(scope="module")
def shared_target(tmp_path_factory):
    target = Target(tmp_path_factory.mktemp("targets"))
    yield target
    target.close()


@pytest.mark.parametrize("title", odd_calls.FACADES)
def test_sampled_odd_arguments_raise_typed_errors(title, shared_target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problems_of_calls(title, shared_target, odd_calls.sample) == []


@pytest.mark.slow
@pytest.mark.parametrize("title", odd_calls.FACADES)
def test_all_odd_arguments_raise_typed_errors(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = Target(tmp_path)
    assert problems_of_calls(title, target, lambda _: odd_calls.ODD) == []
    target.close()


def test_required_parameters_have_accepted_values():
    unknown = {
        f"{title}.{name}({key})"
        for title, facade in odd_calls.FACADES.items()
        for name in odd_calls.methods(facade)
        for key, value in odd_calls.required(facade, name, "").items()
        if value is None
    }
    assert unknown == set()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with fourfold.open(tmp_path_factory.mktemp("odd") / "store") as opened:
        odd_calls.fill(opened)
        yield opened


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: fourfold.open(5), "root must be"),
        (lambda store: store.database(5), "name must be"),
        (lambda store: store.backup(5), "destination must be str or Path, got 5"),
        (lambda store: store.streams.list(prefix=5), "must be text, got 5"),
        (lambda store: store.streams.list(content_type=5), "content_type must be str, got 5"),
        (lambda store: store.streams.list(limit="x"), "limit must be int, got 'x'"),
        (lambda store: store.streams["s"].aggregate(by=5), "by must be"),
        (lambda store: store.streams["s"].append({"n": 1}, producer="x"), "producer must be"),
        (lambda store: store.streams["s"].append({"n": 1}, seq=5), "seq must be text, got 5"),
        (lambda store: store.streams["s"].append({1, 2}), "got a set"),
        (lambda store: store.streams["s"].append(frozenset("a")), "got a set"),
        (
            lambda store: store.graphs["notes"].apply(iter([1]), owner=1, trace_id="t"),
            "operations must be mappings, got 1",
        ),
        (
            lambda store: store.graphs["notes"].apply("x", owner=1, trace_id="t"),
            "operations must be",
        ),
    ],
)
def test_message_of_an_odd_call_names_the_argument(store, call, message):
    before = store.streams["s"].position(), store.graphs.position()
    with pytest.raises(InvalidInput, match=message) as refused:
        call(store)
    assert refused.value.hint
    assert (store.streams["s"].position(), store.graphs.position()) == before


class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (True, int, False),
        (1, float, True),
        ("1", float, False),
        (None, int | None, True),
        (None, int, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        ("text", Sequence[str], False),
        (["a"], Sequence[str], True),
        (["a", 1], Sequence[str], False),
        (iter([1]), Iterator[str], True),
        ((1, "a"), tuple[int, str], True),
        ((1, 2), tuple[int, str], False),
        ((1, 2), tuple[int, ...], True),
        ({"a": 1}, Mapping[str, int], True),
        ({"a": "b"}, Mapping[str, int], False),
        (Path("a"), Named, True),
        ("a", Named, False),
        (object(), Any, True),
        (int, type[int], True),
        (1, type[int], False),
    ],
)
def test_values_are_compared_with_annotations(value, hint, expected):
    assert fits(value, hint) is expected


@check_arguments()
class Calls:
    """Calls of each kind that fail without a check."""

    def plain(self, number: int, work: Any = None) -> int:
        return number + (1 if work is None else work())

    async def coroutine(self, number: int) -> int:
        return number + 1

    def generator(self, number: int) -> Iterator[int]:
        yield 0
        yield number + 1

    async def async_generator(self, number: int) -> Any:
        yield number + 1


def test_raw_errors_become_invalid_input_with_name_of_argument():
    calls = Calls()

    async def iterate():
        return [item async for item in calls.async_generator("x")]

    for call in (
        lambda: calls.plain("x"),
        lambda: asyncio.run(calls.coroutine("x")),
        lambda: list(calls.generator("x")),
        lambda: asyncio.run(iterate()),
    ):
        with pytest.raises(InvalidInput, match="number must be int, got 'x'") as refused:
            call()
        assert isinstance(refused.value.__cause__, TypeError)


def test_raw_errors_of_accepted_arguments_are_not_changed():
    with pytest.raises(ZeroDivisionError):
        Calls().plain(1, lambda: 1 // 0)
    with pytest.raises(TypeError, match="mine"):
        Calls().plain(1, lambda: _raise(TypeError("mine")))
    with pytest.raises(TypeError, match="missing 1 required"):
        Calls().plain()


def _raise(error):
    raise error
