"""Names in a memory: namespaces, which are paths of labels, and the ids of their items as text."""

from __future__ import annotations

from typing import Final, TypeAlias

from fourfold import limits
from fourfold.errors import InvalidInput

Namespace: TypeAlias = tuple[str, ...]
MEMORY_DID: Final = "did:memory:"
"""Beginning of the DID of a memory's space."""
_SEPARATOR: Final = "//"
_ESCAPES: Final = str.maketrans({"%": "%25", "/": "%2F"})


def check_namespace(namespace: object, *, is_prefix: bool = False) -> Namespace:
    """Return a namespace as a tuple; one label may be a str. A prefix may be empty."""
    labels = (namespace,) if isinstance(namespace, str) else namespace
    if not isinstance(labels, tuple | list) or not all(
        isinstance(label, str) and label for label in labels
    ):
        raise InvalidInput(
            f"namespace must be non-empty strings, got {namespace!r:.100}",
            hint='For example ("users", "ada").',
        )
    if not labels and not is_prefix:
        raise InvalidInput("namespace must have at least one label", hint='For example ("users",).')
    if len(labels) > limits.NAMESPACE_LABELS_MAX:
        raise InvalidInput(
            f"namespace must have at most {limits.NAMESPACE_LABELS_MAX} labels, got {len(labels)}"
        )
    return tuple(labels)


def encode_namespace(namespace: Namespace) -> str:
    """Return a namespace as text: its labels with `/` between them, `/` and `%` escaped."""
    return "/".join(label.translate(_ESCAPES) for label in namespace)


def decode_namespace(text: str) -> Namespace:
    """Return the namespace of a text; the empty text is the empty prefix."""
    return tuple(map(_unescape, text.split("/"))) if text else ()


def encode_id(namespace: Namespace, key: object) -> str:
    """Return the id of the entity of an item. Different items have different ids."""
    if not isinstance(key, str):
        raise InvalidInput(f"key must be a str, got {key!r:.100}")
    return f"{encode_namespace(namespace)}{_SEPARATOR}{key.translate(_ESCAPES)}"


def decode_id(entity: str) -> tuple[Namespace, str]:
    """Return the namespace and the key of an id."""
    namespace, _, key = entity.partition(_SEPARATOR)
    return decode_namespace(namespace), _unescape(key)


def first_id_after(namespace: Namespace, *, is_below: bool = False) -> str:
    """Return a text that sorts after the items of exactly this namespace, and before others.

    With `is_below`, after those below it, too.
    """
    # The character after "/" is "0".
    return f"{encode_namespace(namespace)}{'0' if is_below else '/0'}"


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")
