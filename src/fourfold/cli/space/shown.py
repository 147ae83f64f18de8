"""How documents, branches and commits look to people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fourfold.models.documents import Revision

_WIDTH: Final = 72
_OPERATIONS_SHOWN: Final = 3


def pretty(value: Any) -> str:
    """JSON over several lines, in its own letters. What a terminal would not print is escaped as
    JSON escapes it, so that the text stays JSON.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def compact(value: Any, width: int = _WIDTH) -> str:
    """JSON on one line, cut where it becomes too long for a table."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def branch_name(name: str | None) -> str:
    return name or "(default)"


def on_branch(name: str) -> str:
    """ " on draft"; nothing for the default branch."""
    return f" on {name}" if name else ""


def change(revision: Revision) -> str:
    """What a revision did, in one line."""
    if revision.op == "set":
        return compact(revision.data)
    if revision.op == "patch":
        return "; ".join(patch_line(patch) for patch in revision.data)
    return ""


def patch_line(patch: Mapping[str, Any]) -> str:
    """`replace /title "b"`: a patch as it would be read out."""
    words = [str(patch["op"])]
    if patch["op"] == "move":
        words += [where(patch["from"]), "->"]
    words.append(where(patch["path"]))
    if patch["op"] == "splice":
        words.append(f"at {patch['index']} remove {patch['remove']} add")
        words.append(compact(patch["add"]))
    words += [compact(patch[key]) for key in ("value", "values", "by") if key in patch]
    return " ".join(words)


def where(pointer: str) -> str:
    """A JSON pointer; the whole document has an empty one, which nobody would see."""
    return pointer or "(all)"


def request_line(original: Mapping[str, Any]) -> str:
    """What a commit was asked to do, in one line."""
    command = original.get("cmd")
    if command == "branch/create":
        parent = branch_name(original.get("parent"))
        return f"create branch {original['name']} from {parent} at {original['at']}"
    if command == "branch/delete":
        return f"delete branch {original['name']}"
    done = operations_line(original.get("operations", ()))
    if "merge" in original:
        return f"merge {branch_name(original['merge']['source'])}: {done or 'no difference'}"
    return done


def operations_line(operations: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{each['op']} {each['id']}" for each in operations[:_OPERATIONS_SHOWN]]
    more = len(operations) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
