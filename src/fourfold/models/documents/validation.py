"""Names, checked before anything is built from them: spaces, entities, branches, sessions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from fourfold.errors import InvalidInput, NotFound
from fourfold.limits import BRANCH_NAME_CHARS_MAX, ENTITY_ID_BYTES_MAX

SPACE_DID_CHARS_MAX: Final = 200
"""A DID becomes a file name, and file systems stop at 255 bytes."""

_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._%-]+(:[A-Za-z0-9._%-]+)*")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_Each = TypeVar("_Each")


def check_did(did: str) -> str:
    """Return a DID; raise InvalidInput for other text, because it becomes a file name."""
    if not isinstance(did, str) or not _DID.fullmatch(did) or ".." in did:
        raise InvalidInput(
            f"{did!r:.100} is not the DID of a space",
            hint="For example did:key:z6MkhaXgBZD or did:web:a.example.",
        )
    if len(did) > SPACE_DID_CHARS_MAX:
        raise InvalidInput(f"the DID of a space has at most {SPACE_DID_CHARS_MAX} characters")
    return did


def check_entity(entity: str) -> str:
    """Return the id of an entity; raise InvalidInput if it is not valid."""
    if not isinstance(entity, str) or not entity:
        raise InvalidInput(
            f"{entity!r:.100} is not the id of an entity", hint="Use a non-empty string."
        )
    return _text(entity, "the id of an entity", ENTITY_ID_BYTES_MAX)


def check_several(things: Iterable[_Each], what: str) -> list[_Each]:
    """Return a list; raise InvalidInput for a text, whose letters were not meant."""
    if isinstance(things, str | bytes | bytearray) or not isinstance(things, Iterable):
        raise InvalidInput(f"{what} are a list, not {things!r:.100}")
    return list(things)


def check_branch(name: str) -> str:
    """Return a name for a new branch; the default branch "" always exists."""
    if (
        not isinstance(name, str)
        or not _BRANCH.fullmatch(name)
        or len(name) > BRANCH_NAME_CHARS_MAX
    ):
        raise InvalidInput(
            f"{name!r:.100} cannot be the name of a branch",
            hint="Letters, digits, '.', '_', '/' and '-', beginning with a letter or digit.",
        )
    return name


def check_known_branch(name: str) -> str:
    """Return the name of a branch that should exist; "" is the default branch."""
    if not isinstance(name, str):
        raise InvalidInput(f"{name!r:.100} is not the name of a branch", hint="Names are strings.")
    if name and (not _BRANCH.fullmatch(name) or len(name) > BRANCH_NAME_CHARS_MAX):
        raise NotFound(f"unknown branch {name!r:.100}", hint="No branch can have that name.")
    return name


def check_session(session: str, local_seq: int) -> None:
    """Raise InvalidInput unless a session and its number are valid."""
    if not isinstance(session, str) or not session:
        raise InvalidInput("a session is a non-empty string")
    _text(session, "a session", ENTITY_ID_BYTES_MAX)
    if type(local_seq) is not int or not 0 <= local_seq < 2**63:
        raise InvalidInput(f"local_seq {local_seq!r:.100} is not a whole number from 0 on")


def _text(text: str, what: str, most: int) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{text!r:.100} is not valid Unicode, so it cannot be {what}") from error
    if size > most or "\x00" in text:
        raise InvalidInput(f"{what} has at most {most} bytes and no NUL; this one has {size}")
    return text
