"""Values as bytes and bytes as names: encodings, hashes, merkle and payload references.

Everything here is pure: no clock, no disk, no network, no randomness. The same value gives the same
bytes and the same name on every machine.
"""

from __future__ import annotations

from fourfold.content.canonical import (
    VERSION,
    decode,
    encode,
    encode_each,
    encode_flat,
    encode_jcs,
    from_json,
)
from fourfold.content.hashes import (
    EMPTY_ID,
    Hasher,
    content_id,
    content_id_of_stream,
    is_content_id,
    parse_content_id,
)
from fourfold.content.merkle import Reference, digest, digest_of_map, refer
from fourfold.content.payload_refs import (
    Decision,
    Inline,
    InternedPayload,
    decide,
    find_refs,
    is_ref,
    read_payload,
)
from fourfold.content.refs import PAYLOAD_KINDS, PayloadRef

__all__ = [
    "EMPTY_ID",
    "PAYLOAD_KINDS",
    "VERSION",
    "Decision",
    "Hasher",
    "Inline",
    "InternedPayload",
    "PayloadRef",
    "Reference",
    "content_id",
    "content_id_of_stream",
    "decide",
    "decode",
    "digest",
    "digest_of_map",
    "encode",
    "encode_each",
    "encode_flat",
    "encode_jcs",
    "find_refs",
    "from_json",
    "is_content_id",
    "is_ref",
    "parse_content_id",
    "read_payload",
    "refer",
]
