"""Strategies for JSON text in any spelling: escapes, and blanks between tokens."""

from __future__ import annotations

import json

from hypothesis import strategies as st

BLANKS = st.sampled_from([b"", b"", b" ", b"\n\t"])


@st.composite
def spelled(draw, text):
    """Draw a JSON string with some characters escaped."""
    out = '"'
    for character in text:
        escape = draw(st.sampled_from(["", "", "", "\\u{:04x}", "\\u{:04X}"]))
        if escape and ord(character) < 0x10000:
            out += escape.format(ord(character))
        else:
            out += json.dumps(character, ensure_ascii=False)[1:-1]
    return (out + '"').encode()
