"""`fourfold show`: an overview of the four models of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.store import overview

_FIELDS: Final = (
    "model",
    "unit",
    "count",
    "count_exact",
    "bytes",
    "bytes_exact",
    "newest",
    "health",
    "problems",
    "writer",
    "details",
)


@fourfold_command("show", rows=True)
@root_argument(required=True)
def command(out: Output, root: Path) -> None:
    """Show what the store ROOT contains: size, counts, newest activity and health of each model.

    Takes about as long for a large store as for a small one: logs are not read, and of many spaces
    only those that changed last are opened. Nothing is written, and the store may be in use.
    """
    models = overview.describe(root)
    total = sum(model["bytes"] for model in models)
    out.rows(
        {"root": str(root), "bytes": total, "models": models},
        "models",
        {
            "model": "model",
            "contains": _contents,
            "size": _size,
            "newest": "newest",
            "writer": lambda model: "" if model["writer"] is None else f"pid {model['writer']}",
            "health": "health",
        },
        fields=_FIELDS,
    )
    if out.format == "text":
        for model in models:
            for problem in model["problems"]:
                out.line(f"{model['model']}: {problem}")
        out.line(f"{root}: {size(total)}. Check every part: `fourfold verify {root}`.")


def _contents(model: dict[str, Any]) -> str:
    """Describe what a model holds: `3 spaces, 12 commits`."""
    details = model["details"]
    text = counted(model["count"], model["unit"]) if model["unit"] else "not readable"
    if not model["count_exact"]:
        text += " or more"
    if "commits" in details:
        sampled = details["sampled_spaces"]
        text += f", {counted(details['commits'], 'commit')}"
        return text if sampled == model["count"] else f"{text} in the {sampled} newest"
    for name, unit in (("records", "record"), ("rows", "row"), ("events", "event")):
        if details.get(name) is not None:
            text += f", {counted(details[name], unit)}"
    return text


def _size(model: dict[str, Any]) -> str:
    return size(model["bytes"]) + ("" if model["bytes_exact"] else " or more")
