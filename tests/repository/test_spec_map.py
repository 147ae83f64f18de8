"""The map of the specifications points at things that exist, and leaves no section out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "spec-map.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "src" / "fourfold", ROOT / "src" / "fourfold" / "models" / "documents")

# The numbered sections of each specification, as far as they have numbers.
SECTIONS = {
    "000": "1 2 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.1 4.2 5.1 5.2 5.3 6.1 6.2 6.3 7.1 7.2 7.3 "
    "7.4 8.1 8.2 8.3 8.4 9.1 9.2 10.1 10.2 10.3 11",
    "001": "1 2 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.1 4.4 5.1 5.3 6.1 6.3 7.1 7.2 7.3 7.4 "
    "8.1 8.4 9.1 9.2 10.1 10.3 11",
    "003": "1 2 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6 4.7 5 6 7 8 9 10 11 12",
}


def part(number: str) -> str:
    """The chapter of one specification."""
    start = TEXT.index(f"## {number}:")
    end = TEXT.find("\n## ", start + 1)
    return TEXT[start : end if end > 0 else None]


@pytest.mark.parametrize("number", ["000", "001", "002", "003", "004"])
def test_every_specification_has_a_chapter(number):
    assert part(number).count("\n| ") > 5


@pytest.mark.parametrize("number", SECTIONS)
def test_every_numbered_section_has_a_line(number):
    firsts = re.findall(r"^\| ([^|]+) \|", part(number), re.MULTILINE)
    named = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", " ".join(firsts)))
    assert set(SECTIONS[number].split()) <= named


def is_in_the_tree(name: str) -> bool:
    if name.startswith("tests/"):
        return (ROOT / name).is_file()
    if name.startswith("test_"):
        return (ROOT / "tests" / "documents" / name).is_file()
    return any((source / name).is_file() for source in SOURCES)


def test_every_file_that_is_named_exists():
    names = sorted(set(re.findall(r"`([\w./]+\.(?:py|sql))`", TEXT)))
    assert len(names) > 100
    assert not [name for name in names if not is_in_the_tree(name)]


def test_every_test_of_a_fault_exists():
    faults = part("003").partition("### Faults")[2]
    named, file = [], ""
    for path, name in re.findall(r"`([\w./]*)::(\w+)`", faults):
        file = path or file
        named.append((file, name))
    assert len(named) > 20
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in named}
    assert not [(path, name) for path, name in named if f"def {name}(" not in texts[path]]


def test_every_trap_that_is_named_has_its_test():
    references = re.findall(r"`(test_space_traps_\w+\.py)` \(((?:\w\d+(?:, )?)+)\)", TEXT)
    assert references
    for file, traps in references:
        text = (ROOT / "tests" / "documents" / file).read_text(encoding="utf-8")
        missing = [trap for trap in traps.split(", ") if f"def test_{trap}_" not in text]
        assert not missing, file
