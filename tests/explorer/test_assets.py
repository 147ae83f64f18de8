"""Static files: the style sheet is served without comments, and with all of its rules."""

from __future__ import annotations

import re
from importlib.resources import files

from fourfold.explorer.assets import Assets


def rules(style):
    """Return a style sheet without comments and whitespace."""
    return "".join(re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL).split())


def test_style_sheet_loses_comments_and_keeps_every_rule():
    source = files("fourfold.explorer").joinpath("static", "explorer.css").read_text()
    assets = Assets()
    served = next(
        content.decode()
        for name, (kind, content) in assets._files.items()
        if name.startswith("explorer.") and kind.startswith("text/css")
    )
    assert "/*" in source
    assert "/*" not in served
    assert rules(served) == rules(source)
    assert len(served) < len(source)
