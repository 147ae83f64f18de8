"""Sync packages: the changes of one domain in a window of seqs of one node. Pure.

    {"format": 1, "node": "...", "sender": "ed25519:...", "domain": "messages",
     "from_seq": 5, "to_seq": 9, "rows": [...], "signature": "..."}

A package covers every number from `from_seq` to `to_seq`, also those under which the domain has
nothing, so a receiver can tell a gap from silence. What is signed are the canonical bytes (RFC
8785) of all but the signature. Nothing in it is an id of one node: apps go by their slug, types by
their key, owners by their public key, objects by the row that made them.

Signatures of sync packages: Ed25519, with keys that the caller keeps.

No key is ever stored: a Signer holds one in memory for as long as it is used, and a verifier needs
only the public key, which is the name of an identity.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from fourfold import limits
from fourfold.content import encode_jcs
from fourfold.errors import InvalidInput, MissingDependency, PackageTampered
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import Kind

PACKAGE_BYTES_MAX: Final = 64 * limits.MIB
"""Size of a sync package, which is held in memory: its signature covers all of it."""

_PREFIX = "ed25519:"


class Signer(Protocol):
    """Signs for an identity: a key in memory, in an agent, in a hardware module."""

    @property
    def public_key(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


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
        return bytes(self._key.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return bytes(self._key.sign(data))


def verify(public_key: str, signature: bytes, data: bytes) -> None:
    """PackageTampered unless the holder of `public_key` signed exactly these bytes."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    raw = _unbase64(public_key.removeprefix(_PREFIX))
    if not public_key.startswith(_PREFIX) or raw is None:
        raise InvalidInput(f"{public_key!r} is not an Ed25519 public key")
    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)
    except (InvalidSignature, ValueError):
        raise PackageTampered(
            f"the package does not carry a valid signature of {public_key}"
        ) from None


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "sync packages are signed with the package `cryptography`, which is not installed",
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


FORMAT = 1
_FIELDS = frozenset(
    {"format", "node", "sender", "domain", "from_seq", "to_seq", "rows", "signature"}
)
_ROW_FIELDS = frozenset(
    {
        "app",
        "kind",
        "type",
        "owner",
        "domains",
        "object",
        "row",
        "version",
        "points",
        "values",
        "created_at",
        "updated_at",
    }
)


class Name(NamedTuple):
    """The name of a row on every node: its author, seq and position.

    The name of an object is that of its first row.
    """

    node: str
    seq: int
    position: int


class Sent(NamedTuple):
    """A row as it travels."""

    app: str
    kind: Kind
    type: str
    owner: str
    domains: tuple[str, ...]
    object: Name
    row: Name
    version: int
    points: dict[str, Name]
    values: dict[str, Any]
    created_at: str
    updated_at: str | None


class Package(NamedTuple):
    node: str
    sender: str
    domain: str
    from_seq: int
    to_seq: int
    rows: tuple[Sent, ...]


def write(package: Package, signer: Signer) -> bytes:
    """Return the package as signed bytes."""
    body = _body(package)
    body["signature"] = base64.b64encode(signer.sign(encode_jcs(body))).decode()
    return encode_jcs(body)


def read(data: bytes, sender: str) -> Package:
    """Parse a package; raise unless `sender`, a public key, has signed it."""
    if len(data) > PACKAGE_BYTES_MAX:
        raise InvalidInput(f"a package of {len(data)} bytes is more than {PACKAGE_BYTES_MAX}")
    try:
        body = json.loads(data)
        signature = base64.b64decode(body.pop("signature"), validate=True)
        signed = encode_jcs(body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise PackageTampered("the bytes are not a signed package") from None
    verify(sender, signature, signed)
    return _package(body, sender)


def _body(package: Package) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "node": package.node,
        "sender": package.sender,
        "domain": package.domain,
        "from_seq": package.from_seq,
        "to_seq": package.to_seq,
        "rows": [_sent_body(row) for row in package.rows],
    }


def _sent_body(row: Sent) -> dict[str, Any]:
    body = row._asdict()
    body["object"], body["row"] = list(row.object), list(row.row)
    body["points"] = {name: list(target) for name, target in row.points.items()}
    body["domains"] = list(row.domains)
    body["values"] = {name: _packed(value) for name, value in row.values.items()}
    if row.updated_at is None:
        del body["updated_at"]
    return body


def _packed(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpacked(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        return base64.b64decode(
            validation.check_fields(value, name, frozenset({"base64"}))["base64"]
        )
    except (KeyError, TypeError, binascii.Error, ValueError):
        raise InvalidInput(f"{name} is not a value") from None


def _package(body: Any, sender: str) -> Package:
    fields = validation.check_fields(body, "package", _FIELDS)
    if fields.get("format") != FORMAT:
        raise InvalidInput(f"{fields.get('format')!r} is not a format of packages known here")
    if fields.get("sender") != sender:
        raise PackageTampered(f"the package names {fields.get('sender')!r} as its sender")
    from_seq = validation.check_integer(fields.get("from_seq"), "from_seq", least=1)
    to_seq = validation.check_integer(fields.get("to_seq"), "to_seq", least=1)
    if from_seq > to_seq:
        raise InvalidInput(f"a package cannot go from {from_seq} back to {to_seq}")
    rows = fields.get("rows")
    if not isinstance(rows, list):
        raise InvalidInput("package.rows must be a list")
    return Package(
        validation.check_text(fields.get("node"), "node"),
        sender,
        validation.check_text(fields.get("domain"), "domain", most=64),
        from_seq,
        to_seq,
        tuple(_sent(row) for row in rows),
    )


def _sent(body: Any) -> Sent:
    fields = validation.check_fields(body, "package", _ROW_FIELDS)
    points, values, domains = fields.get("points"), fields.get("values"), fields.get("domains")
    if (
        not isinstance(points, dict)
        or not isinstance(values, dict)
        or not isinstance(domains, list)
    ):
        raise InvalidInput("a row of a package lacks its points, values or domains")
    updated = fields.get("updated_at")
    return Sent(
        validation.check_slug(fields.get("app")),
        validation.check_kind(fields.get("kind")),
        validation.check_text(fields.get("type"), "type"),
        validation.check_text(fields.get("owner"), "owner", most=4096),
        tuple(validation.check_text(domain, "domain", most=64) for domain in domains),
        _name(fields.get("object"), "object"),
        _name(fields.get("row"), "row"),
        validation.check_integer(fields.get("version"), "version", least=1),
        {str(name): _name(target, str(name)) for name, target in points.items()},
        {str(name): _unpacked(value, str(name)) for name, value in values.items()},
        validation.check_timestamp(fields.get("created_at"), "created_at"),
        None if updated is None else validation.check_timestamp(updated, "updated_at"),
    )


def _name(value: Any, what: str) -> Name:
    if not isinstance(value, list) or len(value) != 3:
        raise InvalidInput(f"{what}: {validation.format_value(value)} is not the name of a row")
    return Name(
        validation.check_text(value[0], f"{what}.node"),
        validation.check_integer(value[1], f"{what}.seq", least=1),
        validation.check_integer(value[2], f"{what}.position"),
    )
