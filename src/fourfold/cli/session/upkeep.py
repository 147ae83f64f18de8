"""`fourfold session verify` and `gc`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from fourfold import limits
from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.cli.session.arguments import sessions_of
from fourfold.errors import CorruptData


@command("verify")
@root_argument(required=True)
def verify(out: Output, root: Path) -> None:
    """Check every event, and everything derived from them.

    Nothing is changed, and the store may be in use. Exits with 8 when something is damaged.
    """
    with sessions_of(root) as sessions:
        position = sessions.position()
        problems = sessions.verify()
    if out.as_json:
        document = {"root": str(root), "position": position, "ok": not problems}
        out.document({**document, "problems": problems})
    elif problems:
        for problem in problems:
            out.line(problem)
    else:
        out.line(f"the sessions of {root} are sound ({counted(position, 'event')} checked)")
    if problems:
        raise CorruptData(
            f"{root}: {counted(len(problems), 'problem')}; first: {problems[0]}",
            hint="Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`.",
        )


@command("gc")
@root_argument(required=True)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=limits.SESSION_GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="What is younger stays, for whoever is about to refer to it.",
)
def gc(out: Output, root: Path, grace: float) -> None:
    """Remove payloads that no event leads to, and the events of deleted sessions."""
    with sessions_of(root, writes=True) as sessions:
        done = sessions.gc(grace)
    if out.as_json:
        out.document({"root": str(root), **msgspec.to_builtins(done)})
        return
    out.line(
        f"{counted(done.payloads, 'payload')} ({size(done.bytes)}) and "
        f"{counted(done.events, 'event')} of {counted(done.sessions, 'deleted session')} removed"
    )
