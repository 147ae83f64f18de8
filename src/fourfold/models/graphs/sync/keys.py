"""Keys of sync: Ed25519 signatures, with private keys that the caller keeps.

No private key is ever stored: a Signer holds one in memory for as long as it is used. A verifier
needs only the public key, which is the name of an identity.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Protocol

from fourfold.errors import InvalidInput, MissingDependency

_PREFIX = "ed25519:"
KEY_BYTES = 32


class Signer(Protocol):
    """Signs for an identity: a key in memory, in an agent, in a hardware module."""

    @property
    def public_key(self) -> str:
        """The public key, as text."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the signature of bytes."""
        ...


class Ed25519Signer:
    """A private key in memory."""

    def __init__(self, private_key: bytes) -> None:
        """`private_key` are the 32 bytes of an Ed25519 key."""
        keys = _ed25519()
        try:
            self._key = keys.Ed25519PrivateKey.from_private_bytes(bytes(private_key))
        except (ValueError, TypeError):
            raise InvalidInput("an Ed25519 private key is 32 bytes") from None
        self.public_key = _PREFIX + _base64(self._key.public_key().public_bytes_raw())

    @staticmethod
    def generate() -> Ed25519Signer:
        """Create a key; keep `private_bytes()` somewhere safe."""
        return Ed25519Signer(_ed25519().Ed25519PrivateKey.generate().private_bytes_raw())

    def private_bytes(self) -> bytes:
        """Return the 32 bytes of the private key."""
        return bytes(self._key.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        return bytes(self._key.sign(data))

    def __repr__(self) -> str:
        return f"<Ed25519Signer {self.public_key}>"


def is_signed(public_key: bytes, signature: bytes, data: bytes) -> bool:
    """Return True if the holder of `public_key` signed exactly these bytes."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def to_bytes(public_key: str) -> bytes | None:
    """Return the 32 bytes of a public key, or None if the text is not an Ed25519 key."""
    raw = _unbase64(public_key.removeprefix(_PREFIX))
    if not public_key.startswith(_PREFIX) or raw is None or len(raw) != KEY_BYTES:
        return None
    return raw


def to_text(public_key: bytes) -> str:
    """Return a public key as the text by which identities are known."""
    return _PREFIX + _base64(public_key)


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "envelopes are signed with the package `cryptography`, which is not installed",
            hint="pip install 'fourfold[sync]'",
        ) from None
    return ed25519


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
