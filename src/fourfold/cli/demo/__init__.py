"""`fourfold demo`: a shop in all four models, served with its explorer and read by Spark."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from fourfold.cli.demo.server import DemoServer
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.errors import AlreadyExists


@_command("demo")
@root_argument(required=False, new=True)
@click.option(
    "--exit",
    "stop",
    is_flag=True,
    help="Stop after the last step, as without a terminal, instead of serving until Ctrl-C.",
)
@click.option("--spark/--no-spark", default=True, help="Run the step with Spark; on by default.")
@click.option("--deep", is_flag=True, help="Show the storage instead: crashes, backups, restores.")
def command(output: Output, root: Path | None, *, stop: bool, spark: bool, deep: bool) -> None:
    """Watch a shop at work, in the terminal and in the browser.

    Starts a server and prints the address of its explorer. Then orders are edited, branched and
    merged, a stream is followed while it is written, an agent is killed in the middle of its turn
    and resumed, and Spark reads all of it. Each step checks its own results. The store stays in
    ROOT, a folder that must not exist yet, or in a new temporary folder that the command names.

    With --deep, the demo shows what happens on disk: group commit, a killed writer, a damaged
    backup. Without ROOT that store is removed at the end.
    """
    if root is not None and root.exists():
        raise AlreadyExists(
            f"{root}: exists already", hint="Pass a folder that does not exist yet."
        )
    if deep:
        _show_deep(output, root)
        return
    started = time.monotonic()
    folder = root or Path(tempfile.mkdtemp(prefix="fourfold-demo-")) / "shop"
    server = DemoServer(folder.absolute())
    if not output.as_json:
        output.line(f"Explorer  {server.url}")
        output.line(f"Store     {folder.absolute()}")
        output.flush()
    with server.running():
        from fourfold.cli.demo.story import Story  # noqa: PLC0415 - takes seconds on a busy machine

        story = Story(output, folder.absolute(), server, started, use_spark=spark)
        story.tell(stay=not stop and not output.as_json and sys.stdout.isatty())


def _show_deep(output: Output, root: Path | None) -> None:
    from fourfold.cli.demo import deep as deep_tour  # noqa: PLC0415 - it imports every model

    scratch = Path(tempfile.mkdtemp(prefix="fourfold-demo-"))
    try:
        stage = deep_tour.Stage(root.absolute() if root else scratch / "store", scratch)
        results: list[dict[str, object]] = []
        for number, act in enumerate(deep_tour.ACTS, start=1):
            lines, facts = act(stage)
            results.append({"act": act.__name__, **facts})
            if not output.as_json:
                title = (act.__doc__ or act.__name__).strip().rstrip(".")
                output.line(f"{number}. {title}")
                for text in lines:
                    output.line(f"   {text}")
                output.line()
        if output.as_json:
            output.document({"root": str(stage.root) if root else None, "acts": results})
        elif root:
            output.line(f"The store is in {root}. Look at it with `fourfold show {root}`.")
        else:
            output.line("To keep the store and inspect it: `fourfold demo my-store --deep`.")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
