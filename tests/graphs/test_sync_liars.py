"""Peers that were accepted and lie: they are answered alike everywhere, and stop no other."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from forged_envelopes import NOW, ForgedLog, attr, id_of, opened, refusal, row, signed
from graph_nodes import APP, SHARED, Node, everything, exported, take, texts, write

from fourfold.errors import NotFound
from fourfold.models.graphs import Query
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync import ingest, refusals
from fourfold.models.graphs.sync.envelope import RowBody
from fourfold.models.graphs.sync.keys import to_bytes
from support.properties import repeats


@pytest.fixture
def people(nodes):
    """Alice, a liar, and Carol, to whom both are peers."""
    return nodes


def kinds(report):
    return [refused.kind for refused in report.refused]


def honest(node, source, text):
    """Let an honest peer add something, which must arrive."""
    write(source, text)
    assert (
        kinds(take(node, source, exported(source, tips=node.graphs.sync_tips("notes")).data)) == []
    )
    assert text in {each.value_text for each in node.graphs.current_attrs(APP)}
    assert node.graphs.verify() == []


# Objects of another kind, and versions that name no object


def test_version_cannot_name_an_object_of_another_kind(people):
    """Ids of tables are alike: the liar's rating had the id of Alice's edge here."""
    alice, mallory, carol = people
    one, _ = write(alice, "one")
    two, _ = write(alice, "two")
    of = {"type_id": alice.types["edge"], "owner_identity": alice.me, "sync_flags": SHARED}
    alice.graphs.insert_edge(APP, {"src_parent_id": one, "dst_parent_id": two, **of})
    carol.pull_all(alice)
    before = everything(carol.graphs)
    parent = row(mallory)
    rating = row(mallory, kind="rating", type="t", pointers=(id_of(parent), None), value_number=1.0,
                 updated_at=None)  # fmt: skip
    edge = row(mallory, kind="edge", type="t", updated_at=None, object=id_of(rating), version=9,
               pointers=(id_of(parent), id_of(parent), None))  # fmt: skip
    assert refusal(carol, mallory, signed(mallory, parent, rating, edge)) == "field_changed"
    assert everything(carol.graphs) == before
    honest(carol, alice, "three")


def test_edge_cannot_begin_elsewhere_in_one_envelope(people):
    _, mallory, carol = people
    one, two = row(mallory), row(mallory, nonce=b"2" * 16)
    edge = row(mallory, kind="edge", updated_at=None, pointers=(id_of(one), id_of(one), None))
    moved = msgspec.structs.replace(
        edge, object=id_of(edge), version=2, pointers=(id_of(two), id_of(one), None)
    )
    assert refusal(carol, mallory, signed(mallory, one, two, edge, moved)) == "field_changed"


def test_row_version_of_another_kind_stops_no_other_peer(people):
    alice, mallory, carol = people
    log, parent, other = ForgedLog(mallory), row(mallory), row(mallory, nonce=b"3" * 16)
    version = attr(mallory, id_of(other), 2, object=id_of(parent), version=2)
    assert kinds(take(carol, mallory, log.package(version))) == ["missing_dependency"]
    take(carol, mallory, log.package(other, parent))
    carol.reopen()
    honest(carol, alice, "hers")
    assert carol.graphs.parked_rows() == ()


@pytest.mark.parametrize("together", [True, False])
def test_version_of_a_version_is_refused(people, together):
    alice, mallory, carol = people
    log, first = ForgedLog(mallory), row(mallory)
    second = row(mallory, nonce=b"2" * 16, object=id_of(first), version=2)
    third = row(mallory, nonce=b"3" * 16, object=id_of(second), version=3)
    if not together:
        assert take(carol, mallory, log.package(first, second)).accepted == 1
        assert refusal(carol, mallory, log.package(third)) == "field_changed"
    else:
        assert refusal(carol, mallory, log.package(first, second, third)) == "field_changed"
    honest(carol, alice, "hers")


@pytest.mark.parametrize("together", [True, False])
def test_version_cannot_change_when_its_object_was_created(people, together):
    _, mallory, carol = people
    log, first = ForgedLog(mallory), row(mallory)
    second = row(mallory, object=id_of(first), version=2, created_at="2020-01-01T00:00:00+00:00")
    if not together:
        take(carol, mallory, log.package(first))
    rows = (first, second) if together else (second,)
    assert refusal(carol, mallory, log.package(*rows)) == "field_changed"


def test_rows_of_an_envelope_follow_what_they_refer_to(people):
    _, mallory, carol = people
    first = row(mallory)
    second = row(mallory, object=id_of(first), version=2)
    assert refusal(carol, mallory, signed(mallory, second, first)) == "malformed"
    assert (
        refusal(carol, mallory, signed(mallory, attr(mallory, id_of(first), 1), first))
        == "malformed"
    )


def test_version_beyond_the_greatest_is_malformed(people):
    _, mallory, carol = people
    log, first = ForgedLog(mallory), row(mallory)
    last = row(mallory, object=id_of(first), version=(1 << 53) + 1)
    assert refusal(carol, mallory, log.package(first, last)) == "malformed"


# The same answer everywhere


def test_version_of_object_of_another_is_refused_wherever_object_is(people, tmp_path):
    alice, mallory, carol = people
    dora = Node(tmp_path / "dora.db", 9)
    for node in people:
        dora.meet(node)
    carol.meet(dora)
    write(alice, "hers")
    data = exported(alice).data
    take(carol, alice, data)
    object_id = envelopes.decode_head(opened(data)[0].head).rows[0]
    log = ForgedLog(mallory)
    packages = [log.package(row(mallory, object=object_id, version=9)), log.package(row(mallory))]
    for package in packages:
        take(carol, mallory, package)
        take(dora, mallory, package)
    take(dora, alice, data)
    for package in packages:
        assert kinds(take(dora, mallory, package)) in (["not_the_owner"], ["gap"])
    assert carol.graphs.sync_heads("notes") == dora.graphs.sync_heads("notes")
    assert carol.pull_all(dora) == 0
    dora.graphs.database.close()


def test_object_of_app_that_is_not_shared_gets_no_versions(people):
    _, mallory, carol = people
    diary = carol.graphs.register_app("diary", "Diary").app_id
    types = carol.graphs.register_type(diary, "parent", "note parent")
    carol.graphs.insert_parent(diary, {"type_id": types, "owner_identity": carol.me})
    carol.graphs.restrict_domain("notes", [APP])
    assert (
        refusal(carol, mallory, signed(mallory, row(mallory, app="diary"))) == "app_not_in_domain"
    )
    carol.graphs.restrict_domain("notes", [])
    # Its id is not known to anyone, and whatever it is: it is not a row of the liar.
    forged = row(mallory, app="diary", object=bytes(32), version=2)
    assert refusal(carol, mallory, signed(mallory, forged)) == "missing_dependency"


def test_row_id_cannot_be_occupied(people):
    """Owner and nonce are in the id, so a row with the nonce of another author is another row."""
    alice, mallory, carol = people
    write(alice, "hers")
    data = exported(alice).data
    copies = [
        msgspec.structs.replace(
            envelopes.decode_row(body), owner=to_bytes(mallory.signer.public_key)
        )
        for body in opened(data)[0].bodies
    ]
    parent = copies[0]
    body = msgspec.structs.replace(copies[1], pointers=(id_of(parent),), value_text="squatted")
    assert take(carol, mallory, signed(mallory, parent, body)).accepted == 1
    assert take(carol, alice, data).added == 2
    assert texts(carol) == ["hers", "squatted"]
    assert carol.graphs.verify() == []


# Bounds


def test_limit_of_an_app_blocks_only_its_own_parked_rows(people):
    alice, mallory, carol = people
    log, parent = ForgedLog(mallory), row(mallory)
    replies = [attr(mallory, id_of(parent), n, value_text=f"{n}") for n in range(1, 6)]
    assert take(carol, mallory, log.package(*replies)).parked == 5
    carol.graphs.set_limits(APP, rows_max=carol.graphs.usage(APP).rows + 3)
    assert take(carol, mallory, log.package(parent)).added == 3
    other = [node.graphs.register_app("other", "Other").app_id for node in (alice, carol)]
    assert take(carol, alice, signed(alice, row(alice, app="other"))).added == 1
    carol.graphs.set_limits(APP)
    carol.pull_all(alice)
    assert texts(carol) == ["1", "2", "3", "4", "5"]
    assert carol.graphs.parked_rows() == ()
    assert carol.graphs.verify() == []
    assert len(carol.graphs.select(Query(other[1], "parent"))) == 1


def test_parked_row_of_app_that_is_not_accepted_now_waits(people):
    _, mallory, carol = people
    log, parent = ForgedLog(mallory), row(mallory)
    take(carol, mallory, log.package(attr(mallory, id_of(parent), 1, value_text="late")))
    take(carol, mallory, log.package(parent))
    assert texts(carol) == ["late"]
    second = row(mallory, nonce=b"9" * 16)
    take(carol, mallory, log.package(attr(mallory, id_of(second), 2, value_text="later")))
    other = carol.graphs.register_app("other", "Other").app_id
    carol.graphs.restrict_domain("notes", [other])
    assert kinds(take(carol, mallory, log.package(second))) == ["app_not_in_domain"]
    log.seq, log.prev = log.seq - 1, opened_prev(carol, mallory)
    carol.graphs.restrict_domain("notes", [])
    take(carol, mallory, log.package(second))
    assert texts(carol) == ["late", "later"]


def opened_prev(node, author):
    """The id of the last entry of an author's log."""
    logs = json.loads(node.graphs.sync_tips("notes"))["logs"]
    (log,) = [each for each in logs if each["author"] == author.signer.public_key]
    return bytes.fromhex(log["tips"][0][1])


def test_parked_rows_of_one_author_leave_room_for_the_others(people, monkeypatch):
    alice, mallory, carol = people
    monkeypatch.setattr(ingest, "PARKED_MAX", 3)
    log = ForgedLog(mallory)
    lost = [attr(mallory, bytes([99 + n]) * 32, n, value_text="x") for n in range(4)]
    assert take(carol, mallory, log.package(*lost[:3])).parked == 3
    assert refusal(carol, mallory, log.package(lost[3])) == "limit_exceeded"
    package = signed(alice, attr(alice, bytes([5]) * 32, 1, value_text="honest"))
    assert take(carol, alice, package).parked == 1


# Claims about this node


def logs_of(node):
    logs = json.loads(node.graphs.sync_tips("notes"))["logs"]
    return [log for log in logs if log["author"] == node.signer.public_key]


def test_invented_tips_start_one_log_and_no_more(people):
    _, mallory, carol = people
    for turn in range(4):
        write(carol, f"{turn}")
        exported(carol)
        tips = {**logs_of(carol)[-1], "tips": [[99, bytes([turn]).hex() * 32]]}
        claim = {"format": 1, "domain": "notes", "logs": [tips]}
        carol.graphs.confirm_tips(carol.peers[mallory.path], json.dumps(claim))
    assert len(logs_of(carol)) == 2


def test_entries_of_another_key_do_not_prove_a_restore(people):
    _, mallory, carol = people
    write(carol, "mine")
    exported(carol)
    incarnation = bytes.fromhex(logs_of(carol)[0]["incarnation"])
    log = ForgedLog(mallory, incarnation)
    for n in range(3):
        assert take(carol, mallory, log.package(row(mallory, nonce=bytes([n]) * 16))).accepted == 1
    write(carol, "more")
    exported(carol)
    assert len(logs_of(carol)) == 1


def test_progress_that_an_app_records_is_not_the_earlier_format(people):
    alice, _, carol = people
    carol.graphs.record_sync_progress(carol.peers[alice.path], "notes", 1)
    honest(carol, alice, "first")


# Refusals are stored


def test_refusals_are_stored_until_the_envelope_is_accepted(people):
    alice, mallory, carol = people
    first, forged = row(alice), signed(mallory, row(alice))
    second = row(alice, object=id_of(first), version=2)
    log = ForgedLog(alice)
    data, later = log.package(first), log.package(second)
    for _ in range(3):
        assert kinds(take(carol, alice, later)) == ["missing_dependency"]
    take(carol, mallory, forged)
    newest, waiting = carol.graphs.sync_refusals()
    assert (newest.kind, newest.peer_id) == ("not_the_author", carol.peers[mallory.path])
    assert (waiting.kind, waiting.retryable, waiting.times) == ("missing_dependency", True, 3)
    assert (waiting.author, waiting.domain, waiting.seq) == (alice.signer.public_key, "notes", 2)
    assert waiting.first_at < waiting.refused_at < newest.refused_at
    take(carol, alice, data)
    take(carol, alice, later)
    carol.reopen()
    assert carol.graphs.sync_refusals() == (newest,)
    assert carol.graphs.sync_refusals(carol.peers[alice.path]) == ()
    with pytest.raises(NotFound, match="unknown peer"):
        carol.graphs.sync_refusals(99)


def test_stored_refusals_are_the_newest_of_each_peer(people, monkeypatch):
    alice, mallory, carol = people
    monkeypatch.setattr(refusals, "REFUSALS_STORED", 3)
    take(carol, alice, signed(alice, row(mallory)))
    for n in range(5):
        take(carol, mallory, signed(mallory, row(mallory, nonce=bytes([n]) * 16), domain=f"d{n}"))
    stored = carol.graphs.sync_refusals(carol.peers[mallory.path])
    assert [refused.domain for refused in stored] == ["d4", "d3", "d2"]
    assert len(carol.graphs.sync_refusals()) == 4
    assert len(carol.graphs.sync_refusals(limit=2)) == 2


# The order of the checks


def order_cases(alice, mallory, carol):
    """Faults in the order of their checks: changes of a row, and of the head."""
    write(alice, "hers")
    data = exported(alice).data
    take(carol, alice, data)
    hers = envelopes.decode_head(opened(data)[0].head).rows[0]
    return {
        "malformed": lambda body, head: (replace(body, created_at="yesterday"), head),
        "bad_signature": lambda body, head: (body, {**head, "author": b"k" * 32}),
        "content_mismatch": lambda body, head: (body, {**head, "body_bytes": 1}),
        "peer_not_allowed": lambda body, head: (body, {**head, "domain": "closed"}),
        "system_app": lambda body, head: (replace(body, app="system"), head),
        "app_not_in_domain": lambda body, head: (replace(body, app="unknown"), head),
        "missing_dependency": lambda body, head: (replace(body, object=bytes(32), version=2), head),
        "not_the_author": lambda body, head: (
            replace(body, owner=to_bytes(carol.signer.public_key)), head
        ),
        "not_the_owner": lambda body, head: (replace(body, object=hers, version=2), head),
        "gap": lambda body, head: (body, {**head, "seq": 2, "prev": bytes(32)}),
    }  # fmt: skip


def replace(body, **changes):
    return msgspec.structs.replace(body, **changes)


SAME_FIELD = {("system_app", "app_not_in_domain"), ("missing_dependency", "not_the_owner")}
"""Faults that one row cannot have at once; they are tried in two rows."""


def test_first_check_in_the_documented_order_decides(people):
    """Two faults at once, in one row, in two rows, and in the reverse order of the rows."""
    alice, mallory, carol = people
    cases = order_cases(alice, mallory, carol)
    names = list(cases)
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            if (first, second) in SAME_FIELD:
                continue
            body, head = cases[second](*cases[first](row(mallory), {}))
            assert refusal(carol, mallory, signed(mallory, body, **head)) == first, (first, second)
    for pair in (names[n:][:2] for n in range(4, 9)):
        rows, head = [], {}
        for n, name in enumerate(pair):
            body, head = cases[name](row(mallory, nonce=bytes([n]) * 16), head)
            rows.append(body)
        for ordered in (rows, rows[::-1]):
            assert refusal(carol, mallory, signed(mallory, *ordered, **head)) == pair[0], pair


def test_unknown_format_and_size_come_before_the_content(people):
    _, mallory, carol = people
    large = attr(mallory, bytes(32), 1, value_text="x" * (1 << 20))
    assert refusal(carol, mallory, signed(mallory, large, format=2)) == "too_large"
    bad = row(mallory, created_at="yesterday")
    assert refusal(carol, mallory, signed(mallory, bad, format=2)) == "unknown_format"


def test_unknown_key_comes_between_signature_and_content(people, tmp_path):
    _, mallory, carol = people
    dora = Node(tmp_path / "dora.db", 9)
    mismatch = {"body_bytes": 1, "domain": "closed"}
    assert refusal(carol, mallory, signed(dora, row(dora), **mismatch)) == "key_unknown"
    forged = signed(dora, row(dora), author=b"k" * 32)
    assert refusal(carol, mallory, forged) == "bad_signature"
    dora.graphs.database.close()


def test_limit_is_the_last_check(people):
    _, mallory, carol = people
    carol.graphs.set_limits(APP, rows_max=carol.graphs.usage(APP).rows)
    gap = signed(mallory, row(mallory), seq=2, prev=bytes(32))
    assert refusal(carol, mallory, gap) == "gap"
    assert refusal(carol, mallory, signed(mallory, row(mallory))) == "limit_exceeded"


def test_envelope_known_is_not_reported_to_peer_without_right(people):
    alice, mallory, carol = people
    write(alice, "hers")
    data = exported(alice).data
    take(carol, alice, data)
    carol.graphs.allow_peer(carol.peers[mallory.path], "notes", may_write=False)
    assert refusal(carol, mallory, data) == "peer_not_allowed"


def test_limit_in_the_middle_of_a_package_refuses_one_envelope(people):
    _, mallory, carol = people
    log = ForgedLog(mallory)
    package = envelopes.pack(
        [opened(log.package(row(mallory, nonce=bytes([n]) * 16)))[0] for n in range(5)]
    )
    carol.graphs.set_limits(APP, rows_max=carol.graphs.usage(APP).rows + 2)
    done = take(carol, mallory, package)
    assert (done.accepted, kinds(done)) == (2, ["limit_exceeded", "gap", "gap"])
    carol.graphs.set_limits(APP)
    done = take(carol, mallory, package)
    assert (done.known, done.accepted, kinds(done)) == (2, 3, [])


# Anything that is signed


class Mutator:
    """Rows of a liar with fields at random, which refer to whatever is there."""

    FIELDS = RowBody.__struct_fields__

    def __init__(self, chance, mallory, ids):
        self.chance = chance
        self.me = to_bytes(mallory.signer.public_key)
        self.mallory = mallory
        self.ids = ids
        """Ids of rows: of Alice, of Carol, of the liar, and of none."""

    def id(self):
        return self.chance.choice([*self.ids, bytes(32), self.chance.randbytes(32)])

    def body(self):
        kind = self.chance.choice(["parent", "attr", "edge", "rating"])
        pointers = {
            "parent": (), "attr": (self.id(),),
            "edge": (self.id(), *self.chance.choice([(self.id(), None), (None, self.id())])),
            "rating": self.chance.choice([(self.id(), None), (None, self.id())]),
        }[kind]  # fmt: skip
        fields = {
            "kind": kind, "type": self.chance.choice(["note parent", "suppress", "t"]),
            "nonce": self.chance.randbytes(16), "pointers": pointers,
            "updated_at": NOW if kind == "parent" else None,
        }  # fmt: skip
        if self.chance.random() < 0.5:
            fields |= {"object": self.id(), "version": self.chance.choice([2, 9, 1 << 53])}
        if kind in ("attr", "rating"):
            fields |= self.chance.choice(
                [{"value_text": "\0é"}, {"value_number": -0.0}, {"value_json": "[]"}, {}]
            )
        body = row(self.mallory, **fields)
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            body = self.mutated(body)
        return body

    def mutated(self, body):
        name = self.chance.choice(self.FIELDS)
        values = {
            "app": ["system", "unknown", "", "other"], "kind": ["parent", "attr", "edge", "rating"],
            "type": ["", "x" * 300, "identity", "pubkey"],
            "owner": [b"", bytes(32), self.me, b"k" * 99],
            "nonce": [bytes(16)], "object": [None, self.id()],
            "version": [0, 1, 2, (1 << 63) - 1, -1],
            "pointers": [(), (None,), (self.id(),) * 3, (None,) * 3],
            "created_at": ["", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59"],
            "updated_at": [None, NOW, "x"], "value_text": ["", "x" * 5000, "\ud7ff\0"],
            "value_number": [float("nan"), float("inf"), -0.0, 5e-324, 1e308],
            "value_blob": [b"", bytes(99)],
            "value_json": ["", "{", "[" * 5000, "1" * 5000, '"\\ud800"'],
        }  # fmt: skip
        return replace(body, **{name: self.chance.choice(values[name])})


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_a_peer_signs_raises_or_stops_another_peer(people, seed):
    chance = random.Random(seed)
    alice, mallory, carol = people
    carol.graphs.register_app("other", "Other")
    write(alice, "first")
    write(carol, "mine")
    first, own = exported(alice).data, exported(carol).data
    take(carol, alice, first)
    ids = [i for data in (first, own) for each in opened(data)
           for i in envelopes.decode_head(each.head).rows]  # fmt: skip
    mutator, log, answers = Mutator(chance, mallory, ids), ForgedLog(mallory), set()
    theirs = [r for r in rows_of(carol) if r.owner_identity != carol_id(carol, mallory)]
    for turn in range(repeats(300)):
        bodies = [mutator.body() for _ in range(chance.choice([1, 1, 2, 4]))]
        before = log.seq, log.prev
        report = take(carol, mallory, log.package(*bodies))
        if report.refused:
            log.seq, log.prev = before
            (refused,) = report.refused
            answers.add(refused.kind)
        else:
            ids.extend(id_of(body) for body in bodies)
            del ids[4:-40]
        if turn % 50 == 0:
            honest(carol, alice, f"{seed} {turn}")
    assert carol.graphs.verify() == []
    assert {"malformed", "missing_dependency", "not_the_author", "not_the_owner"} <= answers
    assert [r for r in rows_of(carol) if r in theirs] == theirs
    honest(carol, alice, "last")


def rows_of(node):
    return [each for rows in everything(node.graphs).values() for each in rows]


def carol_id(node, other):
    """The id of another node's identity."""
    (found,) = [i.id for i in node.graphs.list_identities() if i.pubkey == other.signer.public_key]
    return found
