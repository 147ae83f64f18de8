"""Verification: one changed byte anywhere in the log, or in what is derived from it, is named."""

from __future__ import annotations

import shutil
import zlib
from random import Random

import apsw
import pytest

import fourfold
from fourfold.errors import CorruptData, FourfoldError, PayloadMissing
from fourfold.models.sessions import Payload, verify
from fourfold.models.sessions.stamps import first_digest, header_of, next_digest
from fourfold.testing.session_log_contract import SCRIPT, edge, message
from support.properties import repeats

COLUMNS = {
    "sessions": ["session_key", "session_id", "created_at", "deleted_at", "purged", "seal"],
    "events": [
        "position",
        "session_key",
        "event_id",
        "type",
        "at",
        "entity",
        "entity_id",
        "request_key",
        "body",
        "digest",
        "position_check",
    ],
    "heads": ["head_id", "session_key", "event_id", "basis"],
    "edges": [
        "session_key",
        "edge_id",
        "event_id",
        "from_session",
        "to_session",
        "from_head",
        "to_head",
    ],
    "snapshots": ["session_key", "event_id", "state"],
    "payloads": ["hash", "size", "data"],
}
CASES = [(table, column) for table, columns in COLUMNS.items() for column in columns]
LARGE = "x" * 70_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with something of everything, that verification finds nothing wrong with."""
    root = tmp_path_factory.mktemp("sound") / "store"
    with fourfold.open(root) as store:
        sessions = store.sessions
        for name in ("s", "t", "gone", "purged"):
            sessions.create_session({"id": name, "model": "m"})
            sessions.append_events(name, SCRIPT, key="k")
            sessions.append_events(name, [message(Payload("y" * 600)), message(Payload(LARGE))])
            head = sessions.publish_head(name, {"turn_id": 1})
            sessions.append_events(name, SCRIPT * 3)
            sessions.publish_head(name, {"vars_ref": Payload(["z" * 600], "vars")})
            sessions.append_lineage_edge(name, edge(name, "far", from_head=head.id))
        sessions.delete_session("purged")
        sessions.gc(0)
        sessions.delete_session("gone")
        assert sessions.verify() == []
        with store.sessions.log.database.read() as snapshot:
            for table in COLUMNS:
                assert snapshot.value(f"SELECT count(*) FROM {table}") >= 2
    return root


@pytest.fixture
def root(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def damage(root):
    def run(sql, params=()):
        connection = apsw.Connection(str(root / "sessions" / "events.db"))
        connection.pragma("foreign_keys", "OFF")
        rows = connection.execute(sql, params).fetchall()
        changed = connection.changes()
        connection.close()
        return rows or changed

    return run


def verified(root):
    """What verification says; a store that does not open any more has been found out, too."""
    try:
        with fourfold.open(root) as store:
            problems = [*map(str, store.sessions.verify())]
            with pytest.MonkeyPatch.context() as patch:
                # A read transaction for every row finds the same.
                patch.setattr(verify, "VERIFY_STEP_BYTES", 1)
                assert [*map(str, store.sessions.verify())] == problems
    except FourfoldError as error:
        return [error.message]
    return problems


def flipped(value, bit):
    if value is None:
        return "x"
    if isinstance(value, int):
        return value ^ bit
    text = isinstance(value, str)
    raw = bytearray(value.encode() if text else value)
    raw[len(raw) // 2] ^= bit & 255 or 2
    return bytes(raw)


@pytest.mark.parametrize(("table", "column"), CASES, ids=lambda name: name)
@pytest.mark.parametrize("bit", [1, 128], ids=["other value", "no text any more"])
@pytest.mark.parametrize("which", ["first", "last"])
def test_one_flipped_bit_in_any_column_is_found(damage, root, table, column, bit, which):
    order = "ASC" if which == "first" else "DESC"
    [(rowid, old)] = damage(
        f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL OR '{column}' "
        f"IN ('deleted_at', 'basis', 'from_head') ORDER BY rowid {order} LIMIT 1"
    )
    for each in (bit, 4, 1 << 20):
        new = flipped(old, each)
        written = "CAST(? AS TEXT)" if isinstance(old, str) else "?"
        sql = f"UPDATE OR IGNORE {table} SET {column} = {written} WHERE rowid = ?"
        if damage(sql, (new, rowid)) == 1:
            break
    else:
        pytest.fail("no bit could be flipped")
    assert verified(root)


@pytest.mark.parametrize("table", ["events", "heads", "edges", "payloads"])
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_a_missing_row_is_found(damage, root, table, order):
    skip = 1 if table == "events" and order == "DESC" else 0
    damage(
        f"DELETE FROM {table} WHERE rowid = "
        f"(SELECT rowid FROM {table} ORDER BY rowid {order} LIMIT 1 OFFSET {skip})"
    )
    assert verified(root)


def test_what_is_damaged_is_named(damage, root):
    damage("UPDATE events SET body = '{\"later\":1}' WHERE event_id = 10 AND session_key = 1")
    damage("UPDATE heads SET basis = NULL WHERE session_key = 2")
    damage("UPDATE snapshots SET state = '{}' WHERE session_key = 2")
    problems = verified(root)
    assert any("session 's': event 10 is not what was appended" in each for each in problems)
    assert any("session 't': the row of the head at event" in each for each in problems)
    assert any("session 't': the snapshot at event" in each for each in problems)
    assert not any("'gone'" in each for each in problems)


def test_one_changed_event_is_named_alone(damage, root):
    damage("UPDATE events SET body = replace(body, 'hello', 'jello') WHERE event_id = 5")
    problems = verified(root)
    named = [each for each in problems if "'s'" in each]
    assert named == ["session 's': event 5 is not what was appended: its digest does not follow"]


def test_the_whole_store_is_verified_with_its_sessions(damage, root):
    with fourfold.open(root, mode="r") as store:
        assert store.verify().ok
    damage("UPDATE events SET at = '2020' WHERE event_id = 5")
    with fourfold.open(root, mode="r") as store:
        assert any(
            "event 5 is not what was appended" in each for each in map(str, store.verify().problems)
        )


def test_history_forged_with_new_digests_is_found_by_its_heads(damage, root):
    """An edited event with all later digests recomputed still differs from the heads."""
    damage("UPDATE events SET body = replace(body, 'hello', 'jello') WHERE event_id = 5")
    rows = damage(
        "SELECT rowid, event_id, type, at, entity_id, request_key, body FROM events "
        "WHERE session_key = 1 ORDER BY event_id"
    )
    digest = first_digest("s")
    for rowid, *header, body in rows:
        digest = next_digest(digest, header_of(*header), body)
        check = zlib.crc32(b"%d " % rowid + digest)
        damage(
            "UPDATE events SET digest = ?, position_check = ? WHERE rowid = ?",
            (digest, check, rowid),
        )
    problems = [each for each in verified(root) if "'s'" in each]
    assert any("its head does not cover the events" in each for each in problems)


def test_a_damaged_event_is_an_error_and_never_another_value(damage, root):
    damage("UPDATE events SET body = '{' WHERE event_id = 5")
    damage("DELETE FROM snapshots")
    damage("UPDATE events SET body = '{}' WHERE type = 'session/started' AND event_id = 1")
    with fourfold.open(root) as store:
        with pytest.raises(CorruptData):
            _ = store.sessions.events_since("s", 4)[0].data
        with pytest.raises(CorruptData):
            store.sessions.current_view("s")
        with pytest.raises(CorruptData):
            store.sessions.append_event("s", {"type": "a/b"})


def everything(root):
    """All that a reader can see."""
    with fourfold.open(root, mode="r") as store:
        sessions = store.sessions
        found = [sessions.list_sessions(deleted=True), sessions.all_events_since(0)]
        for sid in ("s", "t"):
            view = sessions.current_view(sid)
            assert view == view.materialize()
            found += [view.materialize(), sessions.lineage(sid)]
            for message in view.messages:
                found.append(sessions.read_payload(message["content"]))
        return found


def flip_bytes(root, sound, seed, times):
    random, path = Random(seed), root / "sessions" / "events.db"
    original, expected = path.read_bytes(), everything(sound)
    found = 0
    for _ in range(times):
        data = bytearray(original)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(bytes(data))
        if verified_reading(root):
            found += 1
        else:
            # Some bytes of a file mean nothing; all others are proved.
            assert everything(root) == expected
    assert found


def test_flipped_byte_of_file_is_found_or_changes_nothing(root, sound):
    flip_bytes(root, sound, 0, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 1 + repeats(12)))
def test_any_flipped_byte_of_file_is_found_or_changes_nothing(root, sound, seed):
    flip_bytes(root, sound, seed, 60)


def verified_reading(root):
    try:
        with fourfold.open(root, mode="r") as store:
            return [*map(str, store.sessions.verify())]
    except FourfoldError as error:
        return [error.message]


def blob_of(root):
    [path] = (root / "sessions" / "blobs").glob("*/*.blob")
    return path


def large_ref(sessions):
    return sessions.current_view("s").messages[2]["content"]


def test_a_removed_file_is_named_and_the_rest_works(root):
    blob_of(root).unlink()
    with fourfold.open(root) as store:
        ref = large_ref(store.sessions)
        assert ref.size == 70_002
        with pytest.raises(PayloadMissing):
            store.sessions.read_payload(ref)
        assert store.sessions.verify_no_dangling_refs("s") == [ref]
        problems = [*map(str, store.sessions.verify())]
        assert all(ref.id in each for each in problems)
        assert len([each for each in problems if "its file is missing" in each]) == 1
        assert store.sessions.append_event("s", {"type": "a/b"}).id
        # Storing the same value again heals it.
        assert store.sessions.intern_payload(LARGE).id == ref.id
        assert store.sessions.verify() == []


def test_a_flipped_byte_in_a_file_is_named(root):
    path = blob_of(root)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    with fourfold.open(root) as store:
        ref = large_ref(store.sessions)
        with pytest.raises(CorruptData):
            store.sessions.read_payload(ref)
        assert store.sessions.verify_no_dangling_refs("s") == []
        assert any(
            "damaged" in each and ref.id in each for each in map(str, store.sessions.verify())
        )


def test_flipped_byte_in_row_is_found_when_it_is_read(damage, root):
    damage("UPDATE payloads SET data = replace(data, 'yy', 'zy') WHERE size = 602")
    with fourfold.open(root) as store:
        ref = store.sessions.current_view("s").messages[1]["content"]
        with pytest.raises(CorruptData):
            store.sessions.read_payload(ref)


def test_a_backup_carries_sessions_and_their_files(root, tmp_path):
    with fourfold.open(root) as store:
        view = store.sessions.current_view("s").materialize()
        store.backup(tmp_path / "copy")
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    with fourfold.open(tmp_path / "again") as store:
        assert store.sessions.current_view("s") == view
        assert store.sessions.read_payload(large_ref(store.sessions)) == LARGE
        assert store.sessions.verify() == []


def test_a_restore_never_hands_out_a_position_again(root, tmp_path):
    with fourfold.open(root) as store:
        store.backup(tmp_path / "copy")
        newest = store.sessions.append_event("s", {"type": "a/b"})
    with pytest.raises(FourfoldError) as caught:
        fourfold.restore(tmp_path / "copy", root)
    assert caught.value.kind == "sequence_regression"
    fourfold.restore(tmp_path / "copy", root, advance=True)
    with fourfold.open(root) as store:
        again = store.sessions.append_event("s", {"type": "a/b"})
        assert (again.id, again.position) == (newest.id, newest.position + 1)
        assert store.sessions.verify() == []
