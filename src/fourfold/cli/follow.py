"""`fourfold follow`: keep a read-only copy of a store in step with an archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted, printable

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.errors import FourfoldError
    from fourfold.store.replica import FollowReport


@_command("follow")
@click.argument("url")
@root_argument(required=True)
@click.option("--once", is_flag=True, help="Apply the newest restore point, and end.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    help="Seconds between two looks at the archive.",
)
def command(out: Output, url: str, root: Path, *, once: bool, every_s: float) -> None:
    """Keep ROOT, a read-only copy, in step with the archive at URL, until interrupted.

    The copy has all models, and is at a restore point at any time. The first run restores the
    newest one; later ones apply what changed since, also after a kill. Each line names the point
    and the lag: the time from its publication until it was applied. Other processes can read ROOT,
    but not write to it. Failures of the object store are retried.
    """
    from fourfold.store.replica import ArchiveFollower  # noqa: PLC0415 - imports every model

    with ArchiveFollower(url, root) as follower:
        if once:
            _show(out, follower.step())
            return

        def report(step: FollowReport) -> None:
            if step.points:
                _show(out, step)

        def fail(error: FourfoldError, pause_s: float) -> None:
            text = f"{error.kind}: {error.message}; retrying in {pause_s:.1f} s"
            click.echo(printable(text), err=True)

        follower.run(report, fail, every_s=every_s)


def _show(out: Output, step: FollowReport) -> None:
    if out.as_json:
        out.text(msgspec.json.encode(step).decode() + "\n")
    elif not step.points:
        out.line(f"point {step.point}: nothing new")
    else:
        out.line(
            f"point {step.point}: {counted(step.rows, 'row')} in "
            f"{counted(step.advanced + step.restored, 'database')} ({step.restored} restored), "
            f"{counted(step.streams, 'stream')}; lag {step.lag_s:.1f} s"
        )
    out.flush()
