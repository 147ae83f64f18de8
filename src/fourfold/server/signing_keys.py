"""Keys of a server: one that signs webhooks, and one that authenticates its tokens.

They are created when they are first needed, in a file that only its owner may read: by default
`server-keys.json` in the store, which backups include, or the file of the setting
`server.keys_file`. A token names a subscription and a wake, and is valid while that wake is
current.
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

from fourfold.durability import sync_file
from fourfold.errors import FormatError, MissingDependency, Unauthorized

FILE_NAME: Final = "server-keys.json"
_TOKEN = "dst_"  # noqa: S105 - a prefix


class Keys:
    """The keys of one store's server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loaded: tuple[bytes, bytes] | None = None

    @property
    def kid(self) -> str:
        """The id of the signing key, derived from the key itself."""
        return f"ds_{hashlib.sha256(self._public()).hexdigest()[:16]}"

    def jwks(self) -> dict[str, object]:
        """Return the public key for verifying signatures, as a JWK set (RFC 8037)."""
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
        """Return the signature header of a body sent at a time."""
        signed = _ed25519(self._read()[0]).sign(f"{now_s}.".encode() + body)
        return f"t={now_s},kid={self.kid},ed25519={_base64(signed)}"

    def token(self, subscription_id: str, generation: int) -> str:
        """Return the token with which a worker acts for one wake of a subscription."""
        return f"{_TOKEN}{generation}.{self._mac(subscription_id, generation)}"

    def generation(self, subscription_id: str, token: str) -> int:
        """Return the generation of the wake that a token was issued for.

        Raises:
            Unauthorized: this server did not issue the token.
        """
        number, dot, mac = token.removeprefix(_TOKEN).partition(".")
        if token.startswith(_TOKEN) and dot and number.isdecimal() and len(number) < 20:
            generation = int(number)
            expected = self._mac(subscription_id, generation)
            if hmac.compare_digest(expected.encode(), mac.encode("utf-8", "replace")):
                return generation
        raise Unauthorized(
            "token: not issued for this subscription",
            hint="Send `Authorization: Bearer TOKEN` with the token that came with the wake.",
        )

    def _mac(self, subscription_id: str, generation: int) -> str:
        message = json.dumps([subscription_id, generation]).encode()
        return _base64(hmac.digest(self._read()[1], message, "sha256"))

    def _public(self) -> bytes:
        return bytes(_ed25519(self._read()[0]).public_key().public_bytes_raw())

    def _read(self) -> tuple[bytes, bytes]:
        if self._loaded is None:
            try:
                text = self._path.read_text(encoding="utf-8")
            except FileNotFoundError:
                text = self._create()
            self._loaded = _parse(self._path, text)
        return self._loaded

    def _create(self) -> str:
        keys = {name: secrets.token_hex(32) for name in ("webhooks", "tokens")}
        text = json.dumps(keys, indent=2)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            sync_file(file.fileno())
        try:
            # Keys that another process created in the meantime win: clients may have seen them.
            os.link(partial, self._path)
        except FileExistsError:
            text = self._path.read_text(encoding="utf-8")
        finally:
            partial.unlink()
        return text


def _parse(path: Path, text: str) -> tuple[bytes, bytes]:
    try:
        document = json.loads(text)
        keys = bytes.fromhex(document["webhooks"]), bytes.fromhex(document["tokens"])
    except (ValueError, KeyError, TypeError):
        keys = b"", b""
    if [len(key) for key in keys] != [32, 32]:
        raise FormatError(
            f"{path}: expected the keys of a server",
            hint="Restore the file, or delete it to create new keys, which voids old tokens.",
        )
    return keys


def _ed25519(private: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "signing webhooks requires cryptography, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return ed25519.Ed25519PrivateKey.from_private_bytes(private)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
