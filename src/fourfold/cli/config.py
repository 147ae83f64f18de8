"""`fourfold config`: every setting, its value and where the value comes from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument, set_option
from fourfold.durability import sync_file
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.settings import FILE_NAME, SettingInfo, fresh_file, load

if TYPE_CHECKING:
    from fourfold.cli.output import Output


@fourfold_command("config", rows=True)
@root_argument(required=False)
@click.option(
    "--init",
    is_flag=True,
    help="Write a commented fourfold.toml into ROOT; print it if there is no ROOT.",
)
@set_option
def command(out: Output, root: Path | None, *, init: bool, flags: dict[str, str]) -> None:
    """Show every setting, its value and its source.

    Without ROOT, the values come from the defaults, the environment and --set.
    """
    if init:
        if flags:
            raise InvalidInput("--init cannot be combined with --set")
        _initialise(out, root)
        return
    if root is not None and not root.is_dir():
        raise NotFound(f"{root} is not a folder", hint="Pass the folder of a store as ROOT.")
    settings = load(root, environ=os.environ, flags=flags)
    file = None if root is None else root / FILE_NAME
    out.rows(
        {
            "root": None if root is None else str(root),
            "file": str(file) if file is not None and file.exists() else None,
            "settings": [msgspec.to_builtins(row) for row in settings.explain()],
        },
        "settings",
        {
            "setting": "name",
            "value": "value",
            "source": "source",
            "default": "default",
            "description": "description",
        },
        fields=SettingInfo.__struct_fields__,
    )


def _initialise(out: Output, root: Path | None) -> None:
    text = fresh_file()
    path = None if root is None else root / FILE_NAME
    if path is not None:
        _create(path, text)
    if out.as_json:
        out.document({"file": None if path is None else str(path), "text": text})
    elif path is None:
        out.text(text)
    else:
        out.line(f"wrote {path}")


def _create(path: Path, text: str) -> None:
    """Create a file atomically; it appears under its name once it is on disk."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".fourfold-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            sync_file(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise AlreadyExists(
            f"{path} exists and was left as it is",
            hint="Print a fresh file to compare with: `fourfold config --init`.",
        ) from None
    finally:
        Path(temporary).unlink()
