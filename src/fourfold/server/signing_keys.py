"""The keys of a server: one that signs webhooks, and one that its tokens are made with.

They are made when they are first needed, and kept in a file that only its owner may read: by
default `server-keys.json` in the store, where backups take it along, or wherever the setting
`server.keys_file` says. A token names a subscription and a wake, and is right for as long as that
wake is the current one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

from fourfold.errors import FormatError, MissingDependency, Unauthorized

FILE_NAME: Final = "server-keys.json"
_TOKEN = "dst_"  # noqa: S105 - what a token begins with


class Keys:
    """The keys of one store's server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: tuple[bytes, bytes] | None = None

    @property
    def kid(self) -> str:
        """The name of the signing key, which comes from the key itself."""
        return f"ds_{hashlib.sha256(self._public()).hexdigest()[:16]}"

    def jwks(self) -> dict[str, object]:
        """What others check signatures with, as RFC 8037 writes it."""
        key = {
            "kty": "OKP",
            "crv": "Ed25519",
            "alg": "EdDSA",
            "use": "sig",
            "kid": self.kid,
            "x": _base64(self._public()),
        }
        return {"keys": [key]}

    def signature(self, body: bytes, now_s: int) -> str:
        """The header that proves who sent a body, and when."""
        signed = _ed25519(self._read()[0]).sign(f"{now_s}.".encode() + body)
        return f"t={now_s},kid={self.kid},ed25519={_base64(signed)}"

    def token(self, subscription_id: str, generation: int) -> str:
        """What a worker shows to speak for one wake of one subscription."""
        return f"{_TOKEN}{generation}.{self._mac(subscription_id, generation)}"

    def generation(self, subscription_id: str, token: str) -> int:
        """The wake that a token was made for; Unauthorized when this server did not make it."""
        number, dot, mac = token.removeprefix(_TOKEN).partition(".")
        if token.startswith(_TOKEN) and dot and number.isdecimal() and len(number) < 20:
            generation = int(number)
            expected = self._mac(subscription_id, generation)
            if hmac.compare_digest(expected.encode(), mac.encode("utf-8", "replace")):
                return generation
        raise Unauthorized(
            "the token is not one of this subscription's",
            hint="Send `Authorization: Bearer TOKEN` with the token that came with the wake.",
        )

    def _mac(self, subscription_id: str, generation: int) -> str:
        said = json.dumps([subscription_id, generation]).encode()
        return _base64(hmac.digest(self._read()[1], said, "sha256"))

    def _public(self) -> bytes:
        return bytes(_ed25519(self._read()[0]).public_key().public_bytes_raw())

    def _read(self) -> tuple[bytes, bytes]:
        if self._held is None:
            try:
                text = self._path.read_text(encoding="utf-8")
            except FileNotFoundError:
                text = self._make()
            self._held = _parse(self._path, text)
        return self._held

    def _make(self) -> str:
        made = {name: secrets.token_hex(32) for name in ("webhooks", "tokens")}
        text = json.dumps(made, indent=2)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Keys that somebody else has made meanwhile stay: others may have seen them.
            os.link(partial, self._path)
        except FileExistsError:
            text = self._path.read_text(encoding="utf-8")
        finally:
            partial.unlink()
        return text


def _parse(path: Path, text: str) -> tuple[bytes, bytes]:
    try:
        given = json.loads(text)
        found = bytes.fromhex(given["webhooks"]), bytes.fromhex(given["tokens"])
    except (ValueError, KeyError, TypeError):
        found = b"", b""
    if [len(each) for each in found] != [32, 32]:
        raise FormatError(
            f"{path} does not hold the keys of a server",
            hint="Restore the file, or remove it: new keys are made, and old tokens are void.",
        )
    return found


def _ed25519(private: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "webhooks are signed with cryptography, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return ed25519.Ed25519PrivateKey.from_private_bytes(private)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
