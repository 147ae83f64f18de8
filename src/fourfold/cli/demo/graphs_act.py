"""The demo's act on graphs: two stores that exchange messages, and agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fourfold
from fourfold.errors import FourfoldError
from fourfold.models.graphs import Applied, Graphs

if TYPE_CHECKING:
    from fourfold.cli.demo.acts import Shown, Stage

_APP = "messages"
_SHARED = 1


def graphs_agree_between_stores(stage: Stage) -> Shown:
    """Two stores exchange a graph in signed packages, and agree."""
    try:
        from fourfold.models.graphs.signing import Ed25519Signer  # noqa: PLC0415 - an extra

        key = Ed25519Signer.generate()
    except FourfoldError as error:
        return [f"left out: {error.message}"], {"skipped": error.hint}
    with fourfold.open(stage.root) as here, fourfold.open(stage.scratch / "peer") as there:
        alice, bob = here.graphs, there.graphs
        for each in (alice, bob):
            each.register_app(_APP, "Messages")
            each.define_domain("talk", _SHARED)
        owner = alice.add_identity(key.public_key, "Alice").id
        first = _say(alice, owner, "Hello")
        alice.apply(_update(alice, owner, first.object_ids[1], "Hello, Bob"))
        peer = bob.add_peer(bob.add_identity(key.public_key).id, "file:").id
        sent = alice.export_package("talk", key)
        assert sent is not None
        done = bob.ingest_package(peer, sent.data)
        changed = sent.data.replace(b"Hello", b"Hullo")
        refusals = [_refusal(bob, peer, data) for data in (sent.data, changed)]
        app = bob.app(_APP).app_id
        now, then = _texts(bob, app), _texts(alice, alice.app(_APP).app_id, first.global_seq)
    lines = [
        f"a message and its correction are numbers {first.global_seq} and {sent.to_seq}",
        f"a signed package of {sent.rows} rows; the other store took in {done.added}: {now[0]!r}",
        f"the same package again: {refusals[0]}; one with a changed letter: {refusals[1]}",
        f"read as of number {first.global_seq}: {then[0]!r}",
    ]
    return lines, {"added": done.added, "text": now[0], "then": then[0], "refused": refusals}


def _say(graphs: Graphs, owner: int, text: str) -> Applied:
    app = graphs.app(_APP).app_id
    talk = graphs.register_type(app, "parent", "conversation")
    body = graphs.register_type(app, "attr", "text")
    common = {"app_id": app, "owner_identity": owner}
    value = {"parent_id": {"$op": 0}, "value": text, "sync_flags": _SHARED}
    ops = [
        {"op": "parent_create", "type_id": talk, "payload": {"sync_flags": _SHARED}, **common},
        {"op": "attr_create", "type_id": body, "payload": value, **common},
    ]
    return graphs.apply({"trace_id": "demo", "ops": ops})


def _update(graphs: Graphs, owner: int, attr_id: int, text: str) -> dict[str, object]:
    op = {
        "op": "attr_update",
        "app_id": graphs.app(_APP).app_id,
        "type_key": "text",
        "owner_identity": owner,
        "payload": {"attr_id": attr_id, "value": text, "sync_flags": _SHARED},
    }
    return {"trace_id": "demo", "ops": [op]}


def _refusal(graphs: Graphs, peer: int, data: bytes) -> str:
    try:
        graphs.ingest_package(peer, data)
    except FourfoldError as error:
        return error.kind
    return "taken in"


def _texts(graphs: Graphs, app: int, at: int | None = None) -> list[str | None]:
    return [row.value_text for row in graphs.current_attrs(app, at=at)]
