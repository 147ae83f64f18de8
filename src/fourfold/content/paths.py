"""Where in a value something is wrong: paths such as `$.rows[3]["odd key"]`.

A refusal is raised where the trouble is found, without knowing the way there; each level that it
passes on its way out adds its own step. So a value without trouble pays nothing for paths.
"""

from __future__ import annotations

import json
import re
from typing import Final, Self, TypeAlias

from fourfold.errors import ContentError


class _InSet:
    """The step into a set, whose elements have no names."""


IN_SET: Final = _InSet()

Step: TypeAlias = str | int | _InSet
"""A dict key, a list index, or an element of a set."""

_STEPS_SHOWN = 12
_KEY_SHOWN = 40
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},]', re.DOTALL)


class Refusal(Exception):
    """A value cannot be taken, for `reason`; `steps` lead there, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[Step] = []

    def within(self, step: Step) -> Self:
        self.steps.append(step)
        return self

    def error(self, what: str) -> ContentError:
        return ContentError(f"{what}: {show_path(self.steps[::-1])}: {self.reason}")


def show_path(steps: list[Step]) -> str:
    """The path as text; the middle of a very long one is left out."""
    if len(steps) > _STEPS_SHOWN:
        half = _STEPS_SHOWN // 2
        left_out = len(steps) - 2 * half
        head = "".join(map(_show_step, steps[:half]))
        tail = "".join(map(_show_step, steps[-half:]))
        return f"${head}...({left_out} more)...{tail}"
    return "$" + "".join(map(_show_step, steps))


def _show_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if isinstance(step, str):
        shown = step if len(step) <= _KEY_SHOWN else step[: _KEY_SHOWN - 3] + "..."
        return f".{shown}" if step.isidentifier() and shown == step else f"[{json.dumps(shown)}]"
    return "{}"


def path_at(text: str, position: int) -> str:
    """The path of what stands at `position` in JSON text, which may be broken from there on."""
    steps: list[Step | None] = []
    expect_key = False
    for token in _TOKEN.finditer(text):
        if token.start() > position or (token.start() == position and steps):
            break
        mark = token[0]
        if mark == "{":
            steps.append(None)
            expect_key = True
        elif mark == "[":
            steps.append(0)
            expect_key = False
        elif mark in ("}", "]"):
            if steps:
                steps.pop()
            expect_key = False
        elif mark == ",":
            last = steps[-1] if steps else 0
            if isinstance(last, int):
                steps[-1:] = [last + 1]
            else:
                expect_key = True
        elif expect_key and steps:
            steps[-1] = _unquote(mark)
            expect_key = False
    return show_path([step for step in steps if step is not None])


def _unquote(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]
