"""Names that a package exports without importing their modules before somebody asks for them.

A worker that only folds documents imports `fourfold.models.documents.fold` and with it the two
packages around it; it must not pay for, or even have, a database driver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

Exports: TypeAlias = tuple[Callable[[str], Any], Callable[[], list[str]]]
"""The `__getattr__` and `__dir__` of a package."""


def exports(package: str, homes: Mapping[str, str]) -> Exports:
    """Export each name from its home, `module` or `module:name there`, when it is first used.

    A name that was found stays in the package, so only the first use comes through here.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = homes[name].partition(":")
        found = getattr(import_module(module), there or name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]).get("__all__", ()), *homes})

    return find, names
