"""The format of sync: rows with content ids, signed envelopes, packages and tips. Pure.

    row body    MessagePack of `RowBody`; its SHA-256 is the row id
    head        MessagePack of `EnvelopeHead`, signed; its SHA-256 is the id of the envelope
    envelope    head, signature, and the bodies of the rows that the head names
    package     a magic line, then envelopes, each after its length

Nothing is ever encoded again to be verified: the bytes that were signed are stored and forwarded.
Nothing in a row is an id of one node: apps go by slug, types by key, owners by public key, objects
by the row id of their first row. Owner and nonce are part of the hash, so equal ids mean equal
content, and no author can occupy the id of another author's row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import PackageRefused, PackageTampered, TooLarge
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.sync.keys import KEY_BYTES, Signer, is_signed

FORMAT: Final = 1
ENVELOPE_BYTES_MAX: Final = limits.MIB
"""Size of an envelope; a row that does not fit into one cannot be shared."""
ENVELOPE_ROWS_MAX: Final = 1_000
"""Rows of an envelope; a larger transaction becomes several envelopes."""
PACKAGE_BYTES_TARGET: Final = limits.MIB
PACKAGE_BYTES_MAX: Final = 4 * limits.MIB
"""Size of a package, which is held in memory."""
ID_BYTES: Final = 32
NONCE_BYTES: Final = 16
_MAGIC: Final = b"fourfold-sync/1\n"
_SIGNED: Final = b"fourfold/envelope/1\0"
_LENGTH_BYTES: Final = 4


class RowBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row as it travels. `object` is None on the first row of an object."""

    app: str
    kind: Kind
    type: str
    owner: bytes
    nonce: bytes
    object: bytes | None
    version: int
    pointers: tuple[bytes | None, ...]
    """Objects that the row refers to, in the order of `REFERENCES`."""
    created_at: str
    updated_at: str | None
    value_text: str | None
    value_number: float | None
    value_blob: bytes | None
    value_json: str | None


class EnvelopeHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The signed part of an envelope."""

    format: int
    author: bytes
    incarnation: bytes
    domain: str
    seq: int
    prev: bytes | None
    rows: tuple[bytes, ...]
    body_bytes: int


class SignedEnvelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A head as it was signed, its signature, and the bodies of its rows."""

    head: bytes
    signature: bytes
    bodies: tuple[bytes, ...]


class DecodedEnvelope(NamedTuple):
    """An envelope that has the format of one; `id` is the id of its head."""

    id: bytes
    head: EnvelopeHead
    envelope: SignedEnvelope
    rows: tuple[RowBody, ...]


class EnvelopeRefused(Exception):
    """An envelope cannot be applied; nothing of it was written. Ingest reports it."""

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable


_encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(RowBody).decode
_decode_head = msgspec.msgpack.Decoder(EnvelopeHead).decode
_decode_envelope = msgspec.msgpack.Decoder(SignedEnvelope).decode


def digest(data: bytes) -> bytes:
    """Return the id of a row body or a head."""
    return hashlib.sha256(data).digest()


def encode_row(row: RowBody) -> bytes:
    """Return the bytes of a row."""
    return _encode(row)


def decode_row(data: bytes) -> RowBody:
    """Parse the bytes of a row."""
    return _decode_row(data)


def decode_head(data: bytes) -> EnvelopeHead:
    """Parse the head of an envelope."""
    return _decode_head(data)


def sign(head: EnvelopeHead, bodies: Iterable[bytes], signer: Signer) -> SignedEnvelope:
    """Return the envelope of a head and its row bodies, signed by its author."""
    data = _encode(head)
    return SignedEnvelope(data, signer.sign(_SIGNED + data), tuple(bodies))


def parse(data: bytes) -> DecodedEnvelope:
    """Decode an envelope; raise EnvelopeRefused if it does not have the format of one."""
    try:
        envelope = _decode_envelope(data)
        version = msgspec.msgpack.decode(envelope.head)[0]
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, RecursionError):
        raise EnvelopeRefused("malformed", "the bytes are not an envelope") from None
    if len(data) > ENVELOPE_BYTES_MAX:
        raise EnvelopeRefused("too_large", f"{len(data)} bytes, at most {ENVELOPE_BYTES_MAX}")
    if version != FORMAT:
        raise EnvelopeRefused("unknown_format", f"expected format {FORMAT}, found {version!r:.40}")
    try:
        head = _decode_head(envelope.head)
        rows = tuple(map(_decode_row, envelope.bodies))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EnvelopeRefused("malformed", f"not a head or a row: {error}") from None
    _check_sizes(head, rows)
    return DecodedEnvelope(digest(envelope.head), head, envelope, rows)


def has_signature(parsed: DecodedEnvelope) -> bool:
    """Return True if the author signed the head."""
    return is_signed_by(parsed.head.author, parsed.envelope)


def is_signed_by(author: bytes, envelope: SignedEnvelope) -> bool:
    """Return True if the key of an author signed the head of an envelope."""
    return is_signed(author, envelope.signature, _SIGNED + envelope.head)


def has_content(parsed: DecodedEnvelope) -> bool:
    """Return True if the rows are those that the head names."""
    bodies, head = parsed.envelope.bodies, parsed.head
    return tuple(map(digest, bodies)) == head.rows and head.body_bytes == sum(map(len, bodies))


def _check_sizes(head: EnvelopeHead, rows: tuple[RowBody, ...]) -> None:
    ids = (head.prev, *(pointer for row in rows for pointer in (row.object, *row.pointers)))
    if (
        len(head.author) != KEY_BYTES
        or len(head.incarnation) != NONCE_BYTES
        or not 0 < len(head.domain) <= 64
        or not 1 <= head.seq <= limits.INTEGER_MAX
        or (head.prev is None) != (head.seq == 1)
        or not 1 <= len(rows) <= ENVELOPE_ROWS_MAX
        or len(set(head.rows)) != len(head.rows)
        or any(len(row.nonce) != NONCE_BYTES for row in rows)
        or any(len(each) != ID_BYTES for each in ids if each is not None)
    ):
        raise EnvelopeRefused("malformed", "a field of the head or of a row has a wrong size")


def pack(envelopes: Iterable[SignedEnvelope]) -> bytes:
    """Return a package of envelopes."""
    data = bytearray(_MAGIC)
    for envelope in envelopes:
        encoded = _encode(envelope)
        data += len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded
    return bytes(data)


def packed_size(envelope: SignedEnvelope) -> int:
    """Return the bytes that an envelope takes in a package."""
    return len(_encode(envelope)) + _LENGTH_BYTES


def unpack(data: bytes) -> list[bytes]:
    """Return the envelopes of a package; raise if it is too large or not whole."""
    if len(data) > PACKAGE_BYTES_MAX:
        raise TooLarge(f"a package of {len(data)} bytes is more than {PACKAGE_BYTES_MAX}")
    if not data.startswith(_MAGIC):
        raise PackageRefused(
            "not a sync package of this version",
            hint="Packages of the earlier format cannot be imported: export again.",
        )
    return list(_iter_envelopes(data))


def _iter_envelopes(data: bytes) -> Iterator[bytes]:
    at = len(_MAGIC)
    while at < len(data):
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(data[at:start], "big")
        if start > len(data) or end > len(data):
            raise PackageTampered("the package is cut off: it ends within an envelope")
        yield data[start:end]
        at = end


class LogTips(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last entries of one log, as (seq, id in hex); several if the log is forked."""

    author: str
    incarnation: str
    tips: tuple[tuple[int, str], ...]


class Tips(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tips of each log that a node has of a domain."""

    format: int
    domain: str
    logs: tuple[LogTips, ...]


def encode_tips(tips: Tips) -> bytes:
    """Return the bytes of the tips of logs."""
    return msgspec.json.encode(tips)


def decode_tips(data: bytes | str) -> Tips:
    """Parse tips; raise PackageRefused if the bytes are none."""
    try:
        tips = msgspec.json.decode(data, type=Tips)
        ids = [id_hex for log in tips.logs for _, id_hex in log.tips]
        if tips.format != FORMAT or any(len(bytes.fromhex(each)) != ID_BYTES for each in ids):
            raise PackageRefused(f"expected tips of format {FORMAT}")
    except (msgspec.MsgspecError, ValueError) as error:
        raise PackageRefused(f"not the tips of a domain: {error}") from None
    return tips
