"""What the commands on sessions share: ROOT and SID, and values as JSON has them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fourfold.cli.options import command, root_argument
from fourfold.content import PayloadRef, encode
from fourfold.content.integers import integer_text
from fourfold.errors import NotFound
from fourfold.models.sessions import Sessions
from fourfold.store import open_store

_CELL_CHARS = 60
_INTEGER_BITS_MAX = 8_192
"""A longer integer is shown as a text of its digits: most JSON parsers cannot read it."""


class RootMayBeLeftOut(click.Command):
    """A command that takes ROOT and one thing more, such as SID. With one of them only, it is the
    other thing, and FOURFOLD_ROOT stands in for ROOT.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        root = os.environ.get("FOURFOLD_ROOT")
        _, other = [each.name for each in self.params if isinstance(each, click.Argument)]
        if root and isinstance(given.get("root"), str) and not isinstance(given.get(other), str):
            args = [str(Path(root).absolute()), *args]
        return super().parse_args(ctx, args)


def session_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command that reads one session: its function gets an `Output`, the `Sessions`, the id."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, sid: str, **arguments: Any) -> None:
            with sessions_of(root) as sessions:
                function(out, sessions, sid, **arguments)

        with_sid = click.argument("sid")(run)
        return command(name, RootMayBeLeftOut)(root_argument(required=True)(with_sid))

    return decorate


@contextmanager
def sessions_of(root: Path, *, writes: bool = False) -> Iterator[Sessions]:
    """The sessions of a store that has some; none are ever made here."""
    with open_store(root, mode="r") as store:
        try:
            sessions = store.sessions
        except NotFound:
            raise NotFound(
                f"{root}: there are no sessions yet",
                hint="A program makes them: `store.sessions.create_session()`.",
            ) from None
        if not writes:
            yield sessions
            return
    with open_store(root) as store:
        yield store.sessions


def plain(value: Any) -> Any:
    """A value as JSON has it: a reference is a dict that says so, other tags stay as they are."""
    if isinstance(value, PayloadRef):
        return value.as_dict()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if type(value) is int and value.bit_length() > _INTEGER_BITS_MAX:
        return integer_text(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return json.loads(encode(value))


def brief(value: Any) -> str:
    """A value in a line."""
    text = json.dumps(plain(value), ensure_ascii=True)
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 3] + "..."
