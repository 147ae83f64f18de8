"""The canonical bytes of one corpus, made by processes that differ in all that must not matter.

Run as a program, this file prints the bytes of its corpus; the test runs it under other hash seeds,
locales and encodings and compares what they print.
"""

from __future__ import annotations

import hashlib
import locale
import os
import random
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import fourfold.content
from fourfold.content import PayloadRef, encode, refer

WORDS = [
    "alpha",
    "Beta",
    "élan",
    "Ω",
    "~tag",
    "\u0131",
    "\u0130",
    "\U0001f600",
    "",
    "z\u0301",
    "10",
    "9",
]


def corpus() -> list[object]:
    """Values whose sets and dicts are built in an order that this process alone has."""
    shuffled = sorted(WORDS, key=hash)
    return [
        {word: index for index, word in enumerate(WORDS)},
        {word: WORDS.index(word) for word in shuffled},
        set(shuffled) | {1, 2.5, None, b"x", Decimal("1.10"), (1, "a"), frozenset(shuffled)},
        {"nested": [{word: {word, (word, 1)} for word in shuffled}]},
        [datetime(2026, 11, 15, 10, 30, 0, 1, tzinfo=UTC), UUID(int=2**127), -0.0, 1e300, 10**5000],
        {
            "numbers": [1234567.891, 0.1, 1e-9, 2**63],
            "ref": PayloadRef("sha256:" + "0" * 64, "vars", 9),
        },
    ]


def printed() -> str:
    lines = [hashlib.sha256(encode(value)).hexdigest() for value in corpus()]
    return "\n".join([*lines, str(refer({word: WORDS.index(word) for word in WORDS}))])


def test_hash_seed_locale_and_process_change_no_byte():
    here = printed()
    source = Path(fourfold.content.__file__).parents[2]
    for seed, place, mode in [
        ("0", "C", "0"),
        ("1", "C.UTF-8", "1"),
        ("4294967295", "de_DE.UTF-8", "0"),
        ("random", "tr_TR.UTF-8", "1"),
    ]:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(source),
            "PYTHONHASHSEED": seed,
            "PYTHONUTF8": mode,
            "LC_ALL": place,
        }
        child = subprocess.run(
            [sys.executable, __file__],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert child.stdout.strip() == here, (seed, place)


def main() -> None:
    # A locale that is not installed falls back to C; where it is installed it must not matter.
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    random.seed()
    print(printed())


if __name__ == "__main__":
    main()
