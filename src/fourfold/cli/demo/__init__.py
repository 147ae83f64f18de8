"""`fourfold demo`: a tour of a real store with real processes, in a few seconds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fourfold.cli.demo.steps import ACTS, Stage
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.errors import AlreadyExists


@_command("demo")
@root_argument(required=False, new=True)
def command(output: Output, root: Path | None) -> None:
    """Watch a store at work: group commit, a killed writer, branches, time travel.

    Without ROOT the demo uses a temporary folder that is removed at the end. With ROOT, a folder
    that must not exist yet, the store stays there for you to inspect.
    """
    if root is not None and root.exists():
        raise AlreadyExists(
            f"{root}: exists already", hint="Pass a folder that does not exist yet."
        )
    scratch = Path(tempfile.mkdtemp(prefix="fourfold-demo-"))
    try:
        stage = Stage(root.absolute() if root else scratch / "store", scratch)
        results: list[dict[str, object]] = []
        for number, act in enumerate(ACTS, start=1):
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
            output.line("To keep the store and inspect it: `fourfold demo my-store`.")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
