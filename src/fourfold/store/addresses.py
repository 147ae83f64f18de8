"""Where the objects of a store are, written down: records that are published leave the log, so a
store must find its objects again. The first address that is given for it is written into its
`fourfold.toml`, and another one is refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fourfold import config
from fourfold.errors import Refused

_SETTING = "objects.url"
_DEFAULT_LINE = "#url = "


def remember(root: Path, objects: str | None) -> None:
    """Write down where the objects of a store are, unless that is known."""
    if objects is None:
        return
    # A folder that is given on the command line is meant from where the caller stands.
    url = objects if ":" in objects else str(Path(objects).absolute())
    settings = config.load(root, environ=os.environ)
    known = settings.objects.url
    if url in {known, str(root.absolute() / known)}:
        return
    file = root / config.FILE_NAME
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.startswith(_DEFAULT_LINE)]
    if settings.source(_SETTING).layer != "default" or len(found) != 1:
        raise Refused(
            f"{root}: has its objects at {known!r} ({settings.source(_SETTING)}), not at {url!r}",
            hint=f"Change {_SETTING} in {file}, once the objects are there.",
        )
    lines[found[0]] = f"url = {json.dumps(url)}\n"
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text("".join(lines), encoding="utf-8")
    partial.chmod(0o600)
    partial.replace(file)
