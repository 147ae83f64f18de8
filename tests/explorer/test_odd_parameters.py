"""Every page answers odd parameters with a page or an error of the request, not with a failure."""

from __future__ import annotations

import random
from urllib.parse import urlencode

import msgspec
import pytest
from shop_store import AGENT, DID, ORDER

from fourfold.explorer import explorer
from support.properties import examples

HTML = {"accept": "text/html"}
PARTS = [
    part
    for module in explorer._MODULES
    for part in (*module.PAGES, *getattr(module, "FRAGMENTS", ()))
]
KNOWN = {
    "did": [DID, "did:memory:assistant"],
    "id": [ORDER, "users/ada//food", "1"],
    "app": ["crm"],
    "sid": [AGENT],
    "name": ["orders"],
}
ODD = (
    *("", "0", "-1", "1", "99999999999999999999", "1e9", "null", "%", "/", "//", "a//b", "\0"),
    *("did:x", "did:memory:none", "2026-11-19T14:40:00Z", "20300101T000000.000Z-0000"),
    *(
        "[1",
        "{}",
        '{"a": 1}',
        "[0.1]",
        "select 1",
        "discount",
        "materialize",
        "é\ud7ff",
        "x" * 3000,
    ),
    f"sha256:{'0' * 64}",
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.path)
def test_odd_parameters_are_no_failure_of_the_server(shop, part):
    choose = random.Random(part.path)
    for _ in range(examples(30)):
        query = {}
        for field in msgspec.structs.fields(part.query):
            known = KNOWN.get(field.encode_name, ())
            if field.required or choose.random() < 0.4:
                values = known if known and choose.random() < 0.7 else ODD
                query[field.encode_name] = choose.choice(values)
        path = f"{part.path}?{urlencode(query, errors='surrogatepass')}"
        assert shop.ask("GET", path, headers=HTML).status in {200, 400, 403, 404, 409, 410}, path
