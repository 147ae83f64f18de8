"""What the tests of `fourfold space` share."""

from __future__ import annotations

import json

DID = "did:web:shop.example"


def get(on, entity="note", *options):
    """The document that `fourfold space get` prints."""
    return json.loads(on("get", entity, *options).out)
