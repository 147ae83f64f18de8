"""Arguments that commands on a space share, and formatting of documents, branches and commits."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import msgspec

from fourfold.cli.completion import complete_entities, complete_spaces
from fourfold.cli.history_options import Decorator
from fourfold.cli.options import command, root_argument
from fourfold.durability import sync_file
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.models.documents import Space, check_did
from fourfold.store import open_store


def space_arguments(
    name: str, *, rows: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command that takes ROOT and DID, and then its own arguments."""

    def decorate(function: Callable[..., None]) -> click.Command:
        with_did = click.argument("did", shell_complete=complete_spaces)(function)
        return command(name, rows=rows)(root_argument(required=True)(with_did))

    return decorate


def space_command(
    name: str, *, writes: bool = False, rows: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command on an existing space; its function gets an `Output` and the `Space`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, did: str, **arguments: Any) -> None:
            with existing_space(root, did, writes=writes) as space:
                function(out, space, **arguments)

        return space_arguments(name, rows=rows)(run)

    return decorate


@contextmanager
def existing_space(root: Path, did: str, *, writes: bool) -> Iterator[Space]:
    """Open a space for reading or for writing; reading works while another process writes.

    Never creates a space: a misspelt DID is an error.
    """
    check_did(did)
    with open_store(root, mode="r") as store:
        if did not in store.spaces():
            raise NotFound(
                f"{root}: there is no space {did}",
                hint=f"Create it: `fourfold space create {root} {did}`. "
                f"Those that exist: `fourfold space list {root}`.",
            )
    with open_store(root, mode="rw" if writes else "r") as store:
        yield store.space(did)


entity_argument: Final = click.argument("entity", metavar="ID", shell_complete=complete_entities)


def limit_option(default: int) -> Decorator:
    """Return the option of a maximum number of rows."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Maximum number of rows.",
    )


def json_argument(text: str, what: str) -> Any:
    """Parse JSON from the command line, from a file (`@FILE`) or from stdin (`-`)."""
    if text == "-":
        where, data = "stdin", sys.stdin.buffer.read()
    elif text.startswith("@"):
        where, data = text[1:], file_bytes(Path(text[1:]))
    else:
        where, data = what, text.encode("utf-8", "surrogateescape")
    try:
        value = msgspec.json.decode(data)
        # Numbers stay text: only the keys are checked.
        json.loads(data, object_pairs_hook=_check_keys, parse_int=str, parse_float=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"{where} is not JSON: {_lone_surrogate(data) or error}",
            hint=f"Give {what} as JSON, as @FILE, or as - to read it from stdin.",
        ) from error
    except _DuplicateKey as error:
        raise InvalidInput(
            f"{where}: duplicate key {error.args[0]!r}", hint="Remove the duplicate."
        ) from None
    return value


class _DuplicateKey(Exception):
    """An object has the same key twice."""


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _DuplicateKey(key)
        seen.add(key)


def _lone_surrogate(data: bytes) -> str | None:
    """Return what is wrong with JSON that escapes half of a surrogate pair, or None."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"it has the lone surrogate {error.object[error.start]!a}, which is not Unicode"
    except (ValueError, RecursionError):
        pass
    return None


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that appears under its name once it is complete and on disk."""
    if path.exists():
        raise AlreadyExists(f"{path} exists already", hint="Pass a file that does not exist yet.")
    if not path.parent.is_dir():
        raise NotFound(f"{path.parent}: there is no such folder", hint="Create it first.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            sync_file(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        raise AlreadyExists(f"{path} exists already") from None
    finally:
        partial.unlink(missing_ok=True)


def file_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raise NotFound if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} is a folder, not a file") from None


_WIDTH: Final = 72
_OPERATIONS_SHOWN: Final = 3


def pretty(value: Any) -> str:
    """Format JSON over several lines.

    Unprintable characters are escaped as in JSON, so that the text stays valid JSON.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def compact(value: Any, width: int = _WIDTH) -> str:
    """Format JSON on one line, truncated to `width`."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def branch_name(name: str | None) -> str:
    """Return the name of a branch for people; the default branch has none."""
    return name or "(default)"


def on_branch(name: str) -> str:
    """Return " on draft", or nothing for the default branch."""
    return f" on {name}" if name else ""


def change(op: str, data: Any) -> str:
    """Describe the change of a revision in one line."""
    if op == "set":
        return compact(data)
    if op == "patch":
        return "; ".join(patch_line(patch) for patch in data)
    return ""


def patch_line(patch: Mapping[str, Any]) -> str:
    """Format a patch: `replace /title "b"`."""
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
    """Format a JSON pointer; the empty pointer of the whole document is made visible."""
    return pointer or "(all)"


def request_line(original: Mapping[str, Any]) -> str:
    """Describe the request of a commit in one line."""
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
    """Return operations as one line, the first of them by name."""
    shown = [f"{operation['op']} {operation['id']}" for operation in operations[:_OPERATIONS_SHOWN]]
    more = len(operations) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
