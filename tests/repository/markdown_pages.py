"""Just enough Markdown to test the documentation: fenced blocks, headings, links.

A fenced block is an example, and examples run. The exception is stated on the line above the fence:

    <!-- not run: it needs a cluster -->
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,})\s*([\w-]*)\s*$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: \S.*-->\s*$")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*#*\s*$")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
LANGUAGES = {
    "",
    "console",
    "diff",
    "json",
    "mermaid",
    "python",
    "sh",
    "sql",
    "text",
    "toml",
    "nginx",
    "yaml",
}
"""What a fence may say. `python`, `console` and `sh` run."""
SHELLS = ("console", "sh")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    runs: bool


def blocks(text):
    """The fenced blocks of a page; `line` is that of the first line inside."""
    found, inside, above = [], None, ""
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            indent, ticks, language = fence.groups()
            inside = (number + 1, language, len(indent), ticks, not _NOT_RUN.match(above), [])
        elif inside is not None and fence and fence[2] == inside[3] and not fence[3]:
            start, language, _, _, runs, lines = inside
            found.append(Block(start, language, "\n".join(lines) + "\n", runs))
            inside = None
        elif inside is not None:
            inside[5].append(line[inside[2] :])
        if line.strip():
            above = line
    assert inside is None, f"the block that starts at line {inside[0] - 1} is never closed"
    return found


def steps(text):
    """What `run_page.py` does for this page: its Python blocks and its commands."""
    found = []
    for block in blocks(text):
        if not block.runs:
            continue
        if block.language == "python":
            found.append(("python", block.line, block.text))
        elif block.language in SHELLS:
            found += commands(block)
    return found


def commands(block):
    """The commands of a block with the output that it shows.

    In a `console` block a command is a line after `$`; in an `sh` block every line is one. Lines
    that end with a backslash or inside quotes go on in the next line.
    """
    found = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if found and not _is_complete(found[-1][2]):
            found[-1][2] += "\n" + line
        elif block.language == "sh" and line.strip():
            found.append(["shell", number, line, ""])
        elif line.startswith("$ "):
            found.append(["shell", number, line.removeprefix("$ "), ""])
        elif found:
            found[-1][3] += line + "\n"
    return [tuple(step) for step in found]


def _is_complete(command):
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def prose(text):
    """The page without its fenced blocks and inline code, line for line."""
    lines = text.splitlines()
    for block in blocks(text):
        for index in range(block.line - 2, block.line + block.text.count("\n")):
            lines[index] = ""
    return [re.sub(r"`[^`]*`", "", line) for line in lines]


def links(text):
    return [
        (number, target)
        for number, line in enumerate(prose(text), start=1)
        for target in _LINK.findall(line)
    ]


def anchors(text):
    """The anchors that a page's headings get, by the rules of GitHub."""
    fenced = {
        number
        for block in blocks(text)
        for number in range(block.line - 1, block.line + block.text.count("\n") + 1)
    }
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in fenced and (match := _HEADING.match(line)):
            slug = re.sub(r"[^\w\- ]", "", match[1].lower()).replace(" ", "-")
            found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{n}" if n else slug for slug, last in found.items() for n in range(last + 1)}


def section(text, heading):
    """What stands below a heading, up to the next one of its level or above."""
    lines = text.splitlines()
    start = lines.index(heading)
    level = len(heading) - len(heading.lstrip("#"))
    fenced = {
        number - 1
        for block in blocks(text)
        for number in range(block.line - 1, block.line + block.text.count("\n") + 1)
    }
    for end in range(start + 1, len(lines)):
        match = re.match(r"#+", lines[end])
        if match and end not in fenced and len(match[0]) <= level:
            return "\n".join(lines[start:end])
    return "\n".join(lines[start:])
