"""The check of a space as units of work: which rules on which part of which file.

A small file is one unit. A large one is divided: its pages, the rules that look at it as a whole,
and for each kind of key several stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import load_queries
from fourfold.models.documents.faults import WHOLE, Kind, Part
from fourfold.pipeline.checking import Finding, Unit
from fourfold.pipeline.finding import Found
from fourfold.store.soundness import faults_of, history_in, opened, rules_of

if TYPE_CHECKING:
    from fourfold.models.documents.history import History, View

_SQL: Final = load_queries("fourfold.pipeline.documents", "verifying.sql")
_CUT_BY_FACTS: Final = ("values", "facts")
"""The rules of a log of facts whose keys are spread like the hashes of the facts."""


def units(file: Found) -> list[Unit]:
    """The work that a file is."""
    count = -(-file.bytes // limits.VERIFY_PART_BYTES)
    if count <= 1:
        return [Unit(file.path, file.space, file.bytes)]
    path = Path(file.path)
    try:
        history = history_in(path)
        with opened(path, history) as view:
            parts = list(_parts(view, history, count))
    except FourfoldError:
        # Whoever checks it will meet the same error, and report it.
        return [Unit(file.path, file.space, file.bytes)]
    share = file.bytes // len(parts)
    return [Unit(file.path, file.space, share, only, part) for only, part in parts]


def _parts(
    view: View, history: History, count: int
) -> Iterator[tuple[tuple[str, ...], Part | None]]:
    by: dict[Kind, list[str]] = {}
    for rule in rules_of(history):
        by.setdefault(rule.by, []).append(rule.name)
    for name in by.pop("", []):
        yield (name,), None
    by_facts = tuple(name for name in by.get("hash", ()) if name in _CUT_BY_FACTS)
    others = tuple(name for name in by.pop("hash", ()) if name not in _CUT_BY_FACTS)
    if others:
        yield others, WHOLE["hash"]
    if by_facts:
        for part in _between("hash", _cuts(view, _SQL.hash_count, _SQL.hashes, count)):
            yield by_facts, part
    for part in _between("seq", view.all(_SQL.seqs, (count,))):
        yield tuple(by["seq"]), part
    for part in _between("entity", _cuts(view, _SQL.entity_count, _SQL.entities, count)):
        yield tuple(by["entity"]), part


def _cuts(view: View, counting: str, keys: str, parts: int) -> list[tuple[Any, ...]]:
    """Keys that leave about as many rows between them: one fewer than parts, or none."""
    width = -(-int(view.value(counting)) // parts)
    return view.all(keys, (width,))[: parts - 1] if width else []


def _between(kind: Kind, cuts: Iterable[tuple[Any, ...]]) -> Iterator[Part]:
    """The parts between keys, from the least to the greatest that there can be."""
    low, highest = WHOLE[kind]
    for cut in cuts:
        if cut > low:
            yield Part(low, cut)
            low = cut
    yield Part(low, highest)


def faults(unit: Unit) -> Iterator[Finding]:
    """What is wrong in a unit."""
    for fault in faults_of(Path(unit.path), unit.only, unit.part):
        key = {name: value for name, value in fault.key.items() if value is not None}
        yield Finding(
            unit.path, unit.space, fault.table, str(fault), key, fault.expected, fault.found
        )
