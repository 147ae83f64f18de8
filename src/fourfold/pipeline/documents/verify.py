"""Units of work for the verification of a space: which rules on which part of a file.

A small file is one unit. A large one is divided: its pages, the rules that need the whole file, and
for each kind of key several ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.documents import verify
from fourfold.models.documents.file_verify import opened, rules_of, verify_file
from fourfold.models.documents.histories import history_in
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.verify_tasks import Unit, Verifier, VerifyProblem


def units(file: StoreFile) -> list[Unit]:
    """Return the units of a file."""
    count = -(-file.bytes // limits.VERIFY_PART_BYTES)
    if count <= 1:
        return [Unit(file.path, file.space, file.bytes)]
    path = Path(file.path)
    try:
        history = history_in(path)
        with opened(path, history) as view:
            parts = list(verify.parts(view, rules_of(history), count))
    except FourfoldError:
        # The verification of the unit meets the same error and reports it.
        return [Unit(file.path, file.space, file.bytes)]
    share = file.bytes // len(parts)
    return [Unit(file.path, file.space, share, only, part) for only, part in parts]


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """Yield the problems of a unit."""
    for problem in verify_file(Path(unit.path), unit.only, unit.part):
        key = {name: value for name, value in problem.key.items() if value is not None}
        yield VerifyProblem(
            unit.path, unit.space, problem.table, str(problem), key, problem.expected, problem.found
        )


VERIFIER: Final = Verifier(units, iter_problems)
