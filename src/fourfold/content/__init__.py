"""Values as bytes and bytes as names: encodings, hashes, merkle and payload references.

Everything here is pure: no clock, no disk, no network, no randomness. The same value gives the same
bytes and the same name on every machine. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "VERSION": "fourfold.content.canonical",
            "decode": "fourfold.content.canonical",
            "encode": "fourfold.content.canonical",
            "encode_each": "fourfold.content.canonical",
            "encode_flat": "fourfold.content.canonical",
            "encode_jcs": "fourfold.content.canonical",
            "from_json": "fourfold.content.canonical",
            "EMPTY_ID": "fourfold.content.hashes",
            "Hasher": "fourfold.content.hashes",
            "content_id": "fourfold.content.hashes",
            "content_id_of_stream": "fourfold.content.hashes",
            "is_content_id": "fourfold.content.hashes",
            "parse_content_id": "fourfold.content.hashes",
            "Reference": "fourfold.content.merkle",
            "digest": "fourfold.content.merkle",
            "digest_of_map": "fourfold.content.merkle",
            "refer": "fourfold.content.merkle",
            "Decision": "fourfold.content.payload_refs",
            "Inline": "fourfold.content.payload_refs",
            "InternedPayload": "fourfold.content.payload_refs",
            "decide": "fourfold.content.payload_refs",
            "find_refs": "fourfold.content.payload_refs",
            "is_ref": "fourfold.content.payload_refs",
            "read_payload": "fourfold.content.payload_refs",
            "PAYLOAD_KINDS": "fourfold.content.refs",
            "PayloadRef": "fourfold.content.refs",
        },
    )

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
