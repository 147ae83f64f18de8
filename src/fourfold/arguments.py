"""Typed errors for arguments of wrong types, at the public classes.

    @check_arguments
    class Streams: ...

Code below a facade relies on the types that a signature declares. If a call raises a raw error,
such as TypeError, its arguments are compared with the signature, and one that does not fit is
refused as `InvalidInput` with its name. A call that succeeds pays for one more function call, and
for no check.

A call meets an argument of a wrong type before it writes, or in a transaction that it rolls back.
A raw error of valid arguments, such as one that the caller's function raised, is not changed.
"""

from __future__ import annotations

import builtins
import collections.abc
import inspect
import math
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from fourfold import limits
from fourfold.errors import InvalidInput

C = TypeVar("C")

RAW: Final = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
"""Errors that a value of a wrong type causes. Some of Fourfold's errors are among them."""
_ITEMS_MAX: Final = 10_000
"""Items of a container that are compared."""


def check_arguments(*, unchecked: Collection[str] = ()) -> Callable[[type[C]], type[C]]:
    """Make the public methods of a class refuse arguments that do not fit their signatures.

    Args:
        unchecked: Methods that are called too often for it, and check their arguments themselves.
    """

    def decorate(cls: type[C]) -> type[C]:
        checked: dict[Any, Any] = {}
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_") and name not in unchecked:
                if method not in checked:
                    checked[method] = _checked(method)
                setattr(cls, name, checked[method])
        return cls

    return decorate


def check_timeout(timeout: object) -> None:
    """Raise InvalidInput unless a timeout is None or a number of seconds."""
    if not fits(timeout, float | None) or timeout != timeout:  # noqa: PLR0124 - not a number
        raise InvalidInput(
            f"timeout must be a number of seconds, got {timeout!r:.100}",
            hint="Pass None to wait without end.",
        )


def check_callable(function: object, name: str) -> None:
    """Raise InvalidInput unless `function` is None or callable.

    For a function that is called after something was written.
    """
    if function is not None and not callable(function):
        raise InvalidInput(
            f"{name} must be a function, got {_shorten(function)}", hint="Pass None for none."
        )


def _checked(method: Any) -> Any:
    """Return a method that explains raw errors by its arguments."""
    if inspect.isasyncgenfunction(method):
        return _checked_async_generator(method)
    if inspect.iscoroutinefunction(method):
        return _checked_coroutine(method)
    if inspect.isgeneratorfunction(method):
        return _checked_generator(method)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except RAW as error:
            _explain(error, method, args, kwargs)
            raise

    return call


def _checked_coroutine(method: Any) -> Any:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except RAW as error:
            _explain(error, method, args, kwargs)
            raise

    return call


def _checked_generator(method: Any) -> Any:
    @wraps(method)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        try:
            return (yield from method(*args, **kwargs))
        except RAW as error:
            _explain(error, method, args, kwargs)
            raise

    return iterate


def _checked_async_generator(method: Any) -> Any:
    @wraps(method)
    async def iterate(*args: Any, **kwargs: Any) -> Any:
        items = method(*args, **kwargs)
        try:
            async for item in items:
                yield item
        except RAW as error:
            _explain(error, method, args, kwargs)
            raise
        finally:
            await items.aclose()

    return iterate


def _explain(error: Exception, method: Any, args: Any, kwargs: Any) -> None:
    """Raise InvalidInput if a raw error is explained by one of the arguments of a call."""
    if type(error) not in {*RAW, KeyError, IndexError, UnicodeEncodeError, UnicodeDecodeError}:
        return
    try:
        arguments = inspect.signature(method).bind(*args, **kwargs).arguments
    except TypeError:
        # An unknown or missing argument: Python names it.
        return
    hints = _Annotations(method)
    for name, value in [*arguments.items()][1:]:
        if not fits(value, hints.get(name)):
            raise InvalidInput(
                f"{name} must be {_describe(hints.annotation(name))}, got {_shorten(value)}",
                hint=f"See help({method.__qualname__}).",
            ) from error
    for name, value in [*arguments.items()][1:]:
        problem = _problem(value)
        if problem:
            raise InvalidInput(
                f"{name} {problem}, got {_shorten(value)}",
                hint=f"See help({method.__qualname__}).",
            ) from error


class _Annotations:
    """The types that a function declares for its parameters, those that can be resolved."""

    def __init__(self, function: Any) -> None:
        self._annotations = function.__annotations__
        self._names = _ModuleNames(vars(sys.modules[function.__module__]))

    def annotation(self, name: str) -> str:
        """Return the annotation of a parameter as text."""
        return str(self._annotations.get(name, "Any"))

    def get(self, name: str) -> Any:
        """Return the type of a parameter; Any if it is not declared."""
        hint = self._annotations.get(name, Any)
        if not isinstance(hint, str):
            return hint
        try:
            return eval(hint, {}, self._names)  # noqa: S307 - an annotation of this package
        except TypeError:
            # It has parameters of a type that only type checkers import.
            return Any


class _ModuleNames(dict[str, Any]):
    """The names of a module; one that only type checkers import is Any."""

    def __missing__(self, name: str) -> Any:
        return vars(builtins).get(name, Any)


def fits(value: Any, hint: Any) -> bool:
    """Return True if a value has a declared type; text is no sequence of texts here."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    kind = types.NoneType if hint is None else origin or hint
    if kind is Any or not isinstance(kind, type):
        return True
    if not args or kind in {type, collections.abc.Callable}:
        return _is_instance(value, kind)
    return _is_instance(value, kind) and _items_fit(value, kind, args)


_NUMBERS: Final[Mapping[Any, Any]] = {int: int, float: int | float}


def _is_instance(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:
        # A protocol, by its names.
        names = {*dir(kind), *getattr(kind, "__annotations__", ())}
        return all(hasattr(value, name) for name in names if not name.startswith("_"))


def _items_fit(value: Any, kind: type, args: tuple[Any, ...]) -> bool:
    """Return True if the items of a container have their declared types."""
    if issubclass(kind, Mapping):
        pairs = [*value.items()][:_ITEMS_MAX]
        return all(fits(key, args[0]) and fits(item, args[1]) for key, item in pairs)
    if not issubclass(kind, Iterable):
        return True
    if isinstance(value, str | bytes | bytearray):
        return False
    if not isinstance(value, Collection):
        # An iterator has been consumed.
        return True
    items = [*value][:_ITEMS_MAX]
    if kind is tuple and args[-1] is not ...:
        return len(items) == len(args) and all(map(fits, items, args))
    return all(fits(item, args[0]) for item in items)


def _problem(value: Any) -> str:
    """Return what is wrong with a value that no signature expresses, or an empty text."""
    if isinstance(value, str):
        if not _is_storable(value):
            return "must not contain a lone surrogate"
        return "must not contain NUL" if "\0" in value else ""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, int) and abs(value) > limits.INTEGER_MAX:
        return "must be less than 2**63"
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return next(filter(None, map(_problem, [*value][:_ITEMS_MAX])), "")
    return ""


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe(annotation: str) -> str:
    """Return an annotation for a message."""
    return annotation.replace(" | ", " or ").replace("builtins.", "")


def _shorten(value: Any) -> str:
    return repr(value)[:80]
