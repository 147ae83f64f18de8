"""Write the client for threads from the client for coroutines: `make generate`.

Each module of `fourfold.client.coroutines` becomes the module of the same name in
`fourfold.client.threads`: `async` and `await` are dropped and names are replaced, token by token;
Ruff then sorts the imports and breaks the lines. A test fails if a module is not up to date.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "fourfold" / "client"
SOURCE, TARGET = CLIENT / "coroutines", CLIENT / "threads"
HEADER = "# Generated from ../coroutines/{} by `make generate`: change that file.\n"
NAMES = {
    "AsyncProducer": "StreamProducer",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
    "asyncio": "time",
    "coroutines": "threads",
}
"""Names that differ by more than the prefix `Async`."""
PHRASES = {
    "async with": "with",
    "async for": "for",
    "It belongs to one event loop.": "Any number of threads may use it.",
    " Cancel it to end it.": "",
}
"""Phrases of docstrings that differ by more than names."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_ONLY_ASYNC = re.compile(r"  # noqa: ASYNC\d+.*")
Edit = tuple[int, int, str]


def main() -> None:
    for path in modules():
        target(path).write_text(to_threads(path), encoding="utf-8")


def modules() -> list[Path]:
    """Return the modules for coroutines."""
    return sorted(path for path in SOURCE.glob("*.py") if path.name != "__init__.py")


def target(path: Path) -> Path:
    """Return where the module for threads is."""
    return TARGET / path.name


def to_threads(path: Path) -> str:
    """Return the text of the module for threads."""
    source = path.read_text(encoding="utf-8")
    text = HEADER.format(path.name) + _apply(source, sorted(_edits(source)))
    text = _ruff(["check", "--select", "I", "--fix", "--quiet"], text, path)
    return _ruff(["format", "--quiet"], text, path)


def _edits(source: str) -> Iterator[Edit]:
    """Yield the parts of the source that change, and what replaces them."""
    starts = _line_starts(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.type == tokenize.NAME and token.string in {"async", "await"}:
            yield begin, end + 1, ""
        elif token.type == tokenize.NAME:
            yield begin, end, _name(token.string)
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            yield begin, end, _prose(token.string)
        elif token.type == tokenize.COMMENT:
            yield begin, end, "" if _ONLY_ASYNC.match("  " + token.string) else token.string


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _name(name: str) -> str:
    return NAMES.get(name) or name.removeprefix("Async")


def _prose(text: str) -> str:
    for phrase, replacement in PHRASES.items():
        text = text.replace(phrase, replacement)
    return _WORD.sub(lambda word: _name(word[0]), text.replace("await ", ""))


def _apply(source: str, edits: list[Edit]) -> str:
    parts, position = [], 0
    for begin, end, text in edits:
        parts += source[position:begin], text
        position = end
    return "".join([*parts, source[position:]])


def _ruff(arguments: list[str], text: str, path: Path) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(target(path)), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
