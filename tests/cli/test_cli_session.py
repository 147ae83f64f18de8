"""`fourfold session`: what it shows, and what it says when there is nothing to show."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from cli_process import environment

import fourfold
from fourfold.models.sessions import Payload
from fourfold.models.sessions.runtime import Final, Runtime


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        sessions.create_session({"id": "s-1", "model": "any"})
        message = {"role": "user", "content": Payload("x" * 600), "bytes": b"\x00"}
        sessions.append_events(
            "s-1",
            [
                {"type": "turn/started", "turn": {"status": "running"}},
                {"type": "message/appended", "message": message},
                {"type": "turn/put", "turn": {"id": 1, "status": "final"}},
            ],
        )
        sessions.publish_head("s-1", {"turn_id": 1})
        sessions.append_event("s-1", {"type": "turn/started", "turn": {"status": "running"}})
        sessions.create_session({"id": "s-2"})
        sessions.intern_payload("nothing refers to this")
    return tmp_path / "store"


@pytest.fixture
def call(tmp_path, call, monkeypatch):
    def run(*arguments, code=0, **environ):
        monkeypatch.chdir(tmp_path)
        done = call("session", *arguments, **environ)
        assert done.code == code, done.err
        return done.out if code == 0 or done.out else done.err

    return run


def test_sessions_are_listed_in_pages(root, call):
    document = json.loads(call("list", root, "--limit", "1", "--json"))
    assert [session["id"] for session in document["sessions"]] == ["s-1"]
    assert document["next_after"] == "s-1"
    assert "s-2" in call("list", root, "--after", "s-1")


def test_a_session_is_shown_now_and_then(root, call):
    now = json.loads(call("show", root, "s-1", "--json"))
    assert [turn["status"] for turn in now["turns"]] == ["final", "running"]
    assert now["kept_messages"][0]["content"]["ref"] == "payload"
    assert now["kept_messages"][0]["bytes"] == {"~bytes": "AA=="}
    for at in ("4", now["current_head"]):
        then = json.loads(call("show", root, "s-1", "--at", at, "--json"))
        assert [turn["status"] for turn in then["turns"]] == ["final"]
    text = call("show", root, "s-1")
    assert "s-1: running, 6 events" in text
    assert "turn 2: running" in text


def test_the_root_may_come_from_the_environment(root, call):
    assert "turn 1: final" in call("show", "s-1", FOURFOLD_ROOT=str(root))


def test_transcript_shows_messages_calls_and_answers_with_their_payloads(tmp_path, call):
    def step(turn):
        found = turn.call("search", lambda: {"rows": [1, 2]})
        parts = [
            {"type": "text", "text": "I searched."},
            {"type": "tool_use", "name": "search", "input": {"q": "folds"}},
        ]
        turn.say("assistant", parts)
        return Final("The end. " * 300 + str(found["rows"]))

    with fourfold.open(tmp_path / "agent") as store:
        runtime = Runtime(store.sessions, step)
        runtime.start({"id": "s"})
        runtime.run_turn(
            "s", "explain folds in four parts, each with an example of its own\nplease"
        )
    text = call("show", "s", "--root", "agent")
    lines = text.splitlines()
    assert lines[0] == "s: idle, 10 events, 1 turn"
    assert "        explain folds in four parts, each with an example of its own" in lines
    assert "        please" in lines
    assert '        call search {"q": "folds"}' in lines
    assert any(line.endswith("  call search: ok") for line in lines)
    assert any(line.endswith("  turn 1: final") for line in lines)
    assert lines[-1] == "        [706 more characters: --full]"
    full = call("show", "s", "--root", "agent", "--full")
    assert "[1, 2]" in full
    assert "more characters" not in full
    document = json.loads(call("show", "s", "--root", "agent", "--json"))
    assert document["activity"] == "idle"
    assert document["session"]["status"] == "running"
    assert [entry["kind"] for entry in document["transcript"]] == [
        "message",
        "turn",
        "call",
        "message",
        "turn",
    ]
    assert document["transcript"][2]["content"] == {"rows": [1, 2]}
    assert call("tree", "agent", "s").startswith("s  idle, ")
    few = call("show", "s", "--root", "agent", "--limit", "1").splitlines()
    assert few[2] == "the newest 1 entries; --limit shows more"
    assert few[3].endswith("turn 1: final")


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (None, "not started"),
        ([], "idle"),
        (["running"], "running"),
        (["final"], "idle"),
        (["error"], "idle (the last turn: error)"),
        (["final", "running"], "running"),
    ],
)
def test_activity_follows_the_newest_turn(tmp_path, call, turns, expected):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        if turns is not None:
            store.sessions.append_event("s", {"type": "session/started", "session": {}})
        for status in turns or ():
            store.sessions.append_event("s", {"type": "turn/started", "turn": {"status": status}})
    assert call("show", "store", "s").startswith(f"s: {expected}, ")


def test_transcript_is_printed_and_exported_in_every_format(tmp_path, call):
    with fourfold.open(tmp_path / "agent") as store:
        runtime = Runtime(store.sessions, lambda turn: Final("<b>" * 400))
        runtime.start({"id": "s"})
        runtime.run_turn("s", "What is a <fold>?")
        transcript = store.sessions.transcript("s")
        past = store.sessions.transcript("s", at=2)
    root = tmp_path / "agent"
    assert call("show", root, "s", "--markdown") == transcript.to_markdown()
    assert call("show", root, "s", "--markdown", "--at", "2") == past.to_markdown()
    assert call("export", root, "s", "--format", "markdown") == transcript.to_markdown()
    assert call("export", root, "s", "--format", "html", "--at", "2") == past.to_html()
    messages = json.loads(call("export", root, "s", "--format", "openai"))
    assert messages == transcript.to_openai()
    file = tmp_path / "s.html"
    line = call("export", root, "s", "--format", "html", "--output", file)
    assert line.startswith(f"exported s to {file}: html, ")
    assert file.read_text() == transcript.to_html()
    again = call("export", root, "s", "--format", "html", "--output", file, code=4)
    assert "error[already_exists]" in again
    assert "--format" in call("export", root, "s", "--at", "2", code=2)
    assert "--markdown" in call("show", root, "s", "--markdown", "--json", code=2)


def test_transcript_starts_at_the_compaction_and_shows_errors(tmp_path, call):
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        sessions.create_session({"id": "s"})
        for text in ("one", "two"):
            message = {"role": "user", "content": text}
            sessions.append_event("s", {"type": "message/appended", "message": message})
        summary = {"role": "system", "content": "a summary"}
        sessions.append_event(
            "s", {"type": "session/compacted", "message": summary, "vars_ref": None}
        )
        sessions.append_event("s", {"type": "session/error", "error": {"message": "no model"}})
    text = call("show", "store", "s")
    assert text.startswith("s: error, ")
    assert "a summary" in text
    assert "no model" in text
    assert "two" not in text
    assert "two" in call("show", "store", "s", "--at", "2")


def test_log_is_an_aligned_table(root, call):
    header, *rows = call("log", root, "s-1").splitlines()
    assert header.split() == ["EVENT", "TIME", "TYPE", "DATA"]
    column = header.index("DATA")
    assert {row[column] for row in rows} == {"{"}
    assert {row[column - 2 : column] for row in rows} == {"  "}


def test_sessions_are_listed_by_update_status_and_kind(root, call):
    rows = json.loads(call("list", root, "--order", "-updated", "--json"))["sessions"]
    seconds = [(row["updated_at"][:19]) for row in rows]
    assert seconds == sorted(seconds, reverse=True)
    assert len(rows) == len(json.loads(call("list", root, "--json"))["sessions"])
    assert call("list", root, "--status", "none") == "no sessions yet\n"
    assert call("list", root, "--kind", "none", "--order", "updated") == "no sessions yet\n"
    assert call("list", root, "--since", "9000-01-01") == "no sessions yet\n"
    assert "is not a time" in call("list", root, "--since", "12", code=2)


def test_the_log_is_listed_in_pages_and_followed(root, call, tmp_path):
    document = json.loads(call("log", root, "s-1", "--after", "1", "--limit", "2", "--json"))
    assert [event["id"] for event in document["events"]] == [2, 3]
    assert document["next_after"] == 3
    assert "head/published" in call("log", root, "s-1")
    command = [sys.executable, "-m", "fourfold", "session", "log", str(root), "s-1"]
    with (
        fourfold.open(root) as store,
        subprocess.Popen(
            [*command, "--follow", "--after", "5", "--json"],
            env={**environment(tmp_path), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert json.loads(child.stdout.readline())["id"] == 6
        store.sessions.append_event("s-1", {"type": "session/stopped"})
        assert json.loads(child.stdout.readline())["type"] == "session/stopped"
        os.kill(child.pid, 2)
        child.stdout.read()


def test_retention_deletes_sessions(root, call):
    with fourfold.open(root) as store:
        store.sessions.create({"id": "old/1"})
        store.sessions.create({"id": "old/2"})
    planned = call("retention", root, "old/", "--keep-latest", "1", "--dry-run")
    assert planned == "old/1\n1 session would be deleted, 0 needed or in use\n"
    done = json.loads(call("retention", root, "old/", "--keep-latest", "1", "--json"))
    assert (done["deleted"], done["sessions"], done["dry_run"]) == (1, ["old/1"], False)
    assert "0 sessions deleted" in call("retention", root, "--max-age", "1d")
    assert "--max-age" in call("retention", root, code=2)


def test_sessions_are_verified_and_collected(root, call):
    assert "are sound (6 events checked)" in call("verify", root)
    assert json.loads(call("gc", root, "--json"))["payloads"] == 0
    planned = call("gc", root, "--grace", "0", "--dry-run")
    assert "1 payload" in planned
    assert planned.endswith("would be removed\n")
    assert json.loads(call("gc", root, "--grace", "0", "--json"))["payloads"] == 1
    with fourfold.open(root) as store:
        store.sessions.log.database.transact(
            lambda txn: txn.execute("UPDATE events SET at = 'x' WHERE event_id = 2")
        )
    assert "event 2 is not what was appended" in call("verify", root, code=8)


def test_what_is_not_there_is_said(root, call, tmp_path):
    assert "error[not_found]" in call("show", root, "s-9", code=3)
    assert "error[not_found]" in call("show", root, "s-1", "--at", "99", code=3)
    with fourfold.open(tmp_path / "empty"):
        pass
    assert call("list", tmp_path / "empty") == "no sessions yet\n"
    assert "there are no sessions yet" in call("show", tmp_path / "empty", "s-1", code=3)


@pytest.fixture
def family(tmp_path):
    """A session with a child that has a child, another that starts from its first head."""

    def step(turn):
        turn.vars[f"v{turn.task}"] = turn.vars["n"] = turn.task
        if turn.task in {2, 20}:
            turn.run_child(turn.task * 10)
        if turn.task == 3:
            turn.vars.pop("v1")
        return Final(turn.task)

    root = tmp_path / "family"
    with fourfold.open(root) as store:
        runtime = Runtime(store.sessions, step)
        runtime.start({"id": "top", "model": "any"})
        heads = [runtime.run_turn("top", task).head for task in (1, 2, 3)]
        runtime.attach(heads[0], 4, sid="fork")
    return root, heads


def test_the_lineage_of_a_session_is_drawn(family, call):
    root, heads = family
    lines = call("tree", root, "top").splitlines()
    assert [line[: line.index("  idle")] for line in lines] == [
        "top",
        "├─ top/2.2.1  invocation",
        "│  └─ top/2.2.1/1.1.1  invocation",
        "└─ fork  derivation",
    ]
    assert "3 heads, " + heads[-1][:19] in lines[0]
    document = json.loads(call("tree", root, "top", "--json"))
    assert [session["id"] for session in document["sessions"]] == [
        "top",
        "top/2.2.1",
        "top/2.2.1/1.1.1",
        "fork",
    ]
    assert {edge["type"] for edge in document["edges"]} == {"invocation", "derivation"}
    assert len(call("tree", root, "fork").splitlines()) == 1
    assert "not_found" in call("tree", root, "unknown", code=3)


def test_heads_are_compared_by_their_variables_and_messages(family, call):
    root, heads = family
    document = json.loads(call("diff", root, "top", "--json"))
    assert (document["one"], document["other"], document["common"]) == (
        heads[1],
        heads[2],
        heads[1],
    )
    assert (document["added"], document["removed"], document["changed"]) == (["v3"], ["v1"], ["n"])
    assert [message["content"] for message in document["new_messages"]] == [3]
    lines = call("diff", root, "fork", "--from", heads[2]).splitlines()
    assert f"both go back to {heads[0]}" in lines
    assert {"+ v4", "+ v1", "- v2", "- v3", "~ n"} <= set(lines)
    assert "first of its session" in call("diff", root, "top", "--to", heads[0], code=2)


def test_a_subtree_is_exported_and_imported(family, call, tmp_path):
    root, heads = family
    path = tmp_path / "top.ndjson"
    document = json.loads(call("export", root, "top", "--output", path, "--json"))
    assert (document["sessions"], document["bytes"]) == (4, path.stat().st_size)
    assert call("export", root, "top").encode() == path.read_bytes()
    assert "already_exists" in call("export", root, "top", "--output", path, code=4)
    assert "4 sessions" in call("import", tmp_path / "copy", path)
    assert "4 sessions" in call("import", path, FOURFOLD_ROOT=str(tmp_path / "copy"))
    assert call("tree", "fork", FOURFOLD_ROOT=str(root)).startswith("fork")
    assert call("tree", tmp_path / "copy", "top") == call("tree", root, "top")
    assert heads[2] in call("show", tmp_path / "copy", "top")
    path.write_bytes(path.read_bytes().replace(b"top", b"tap", 1))
    assert "invalid_input" in call("import", tmp_path / "third", path, code=2)
    assert "not_found" in call("import", tmp_path / "third", tmp_path / "nothing", code=3)
    assert "not_found" in call("export", root, "unknown", "--output", tmp_path / "x", code=3)
    assert not (tmp_path / "x").exists()


def test_log_shows_an_integer_of_any_length(root, call):
    with fourfold.open(root) as store:
        store.sessions.append_event("s-2", {"type": "app/number", "value": 10**5_000})
    [event] = json.loads(call("log", root, "s-2", "--json"))["events"]
    assert event["value"] == "1" + "0" * 5_000
    assert "app/number" in call("log", root, "s-2")


def test_payload_is_printed_by_its_id(root, call):
    shown = json.loads(call("log", root, "s-1", "--json"))["events"]
    [ref] = [event["message"]["content"] for event in shown if "message" in event]
    assert call("payload", root, ref["payload_id"]) == "x" * 600 + "\n"
    document = json.loads(call("payload", root, ref["payload_id"], "--json"))
    assert document == {"id": ref["payload_id"], "size": 602, "value": "x" * 600}
    with fourfold.open(root) as store:
        other = store.sessions.intern_payload({"a": [b"x", 1]})
    assert json.loads(call("payload", root, other.id))["a"][1] == 1
    missing = call("payload", root, "sha256:" + "0" * 64, "--json", code=3)
    assert json.loads(missing)["error"]["kind"] == "payload_missing"
    call("payload", root, "x", code=2)


def test_session_is_claimed_renewed_and_released(root, call):
    assert call("leases", root) == "no leases\n"
    claim = json.loads(call("claim", root, "s-1", "worker 1", "--ttl", "60", "--json"))
    assert (claim["session"], claim["holder"]) == ("s-1", "worker 1")
    epoch = str(claim["epoch"])
    assert "is claimed by 'worker 1'" in call("claim", root, "s-1", "worker 2", code=4)
    renewed = json.loads(call("renew", root, "s-1", epoch, "--ttl", "600", "--json"))
    assert renewed["expires_at"] > claim["expires_at"]
    assert json.loads(call("leases", root, "--json"))["leases"] == [renewed]
    assert call("claim", root, "s-1", "worker 2", "--steal").startswith("claimed s-1 for worker 2")
    assert "error[lease_lost]" in call("release", root, "s-1", epoch, code=4)
    [lease] = json.loads(call("leases", root, "--prefix", "s-", "--json"))["leases"]
    assert call("release", root, "s-1", str(lease["epoch"])).startswith("released s-1")
    assert json.loads(call("leases", root, "--json"))["leases"] == []


def test_search_prints_hits_with_their_matches(root, call):
    with fourfold.open(root) as store:
        for text in ("a Zebra", "two zebras", "other"):
            message = {"role": "user", "content": text}
            store.sessions.append_event("s-2", {"type": "message/appended", "message": message})
    page = json.loads(call("search", root, "zebra*", "--order", "newest", "--json"))
    assert [(hit["session"], hit["event"]) for hit in page["hits"]] == [("s-2", 2), ("s-2", 1)]
    text = call("search", root, "zebra*", "--limit", "1", "--order", "newest")
    assert "two [zebras]" in text
    assert "There are more: --after " in text
    assert "no hits" in call("search", root, "zebra*", "--sid", "s-1")
    assert "a [Zebra]" in call("search", root, "zebra*", "--sid", "s-2", "--at", "1")
    assert "no hits" in call("search", root, "zebra", "--at", "2020-01-01T00:00:00Z")
    assert "is neither a seq" in call("search", root, "zebra", "--at", "then", code=2)
    assert "must be a time" in call("search", root, "zebra", "--at", "2", code=2)


def test_policies_are_stored_listed_applied_and_deleted(root, call):
    assert "no policies" in call("policies", root)
    assert call("set-policy", root, "s-", "--keep-latest", "1") == "stored the policy of s-\n"
    assert "--max-age" in call("set-policy", root, "s-", code=2)
    [policy] = json.loads(call("policies", root, "--dry-run", "--json"))["policies"]
    assert (policy["prefix"], policy["keep_latest"], policy["deleted"]) == ("s-", 1, 1)
    assert "exclude each other" in call("policies", root, "--dry-run", "--apply", code=2)
    call("set-policy", root, "", "--max-age", "30d")
    assert "30d" in call("policies", root, "--apply")
    assert len(json.loads(call("list", root, "--json"))["sessions"]) == 1
    assert call("delete-policy", root, "s-") == "deleted the policy of s-\n"
    assert "no retention policy" in call("delete-policy", root, "s-", code=3)
