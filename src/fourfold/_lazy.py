"""Lazy exports: names of a package whose modules are imported on first use.

A worker that only folds documents imports `fourfold.models.documents.fold` and with it the two
packages around it; it must not need a database driver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

Exports: TypeAlias = tuple[Callable[[str], Any], Callable[[], list[str]]]
"""The `__getattr__` and `__dir__` of a package."""


def exports(package: str, homes: Mapping[str, str]) -> Exports:
    """Return `__getattr__` and `__dir__` that import each name from its home on first use.

    A home is `module`, or `module:attribute` if the name differs there. The name is then stored in
    the package, so only the first use calls `__getattr__`.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        value = getattr(import_module(module), attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]).get("__all__", ()), *homes})

    return get, list_names
