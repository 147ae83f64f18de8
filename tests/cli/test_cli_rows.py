"""Lists: empty ones are not errors, and `--csv` and `--ndjson` print the rows of `--json`."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command_tree import COMMANDS

import fourfold
from fourfold.cli.output import Output
from fourfold.models.streams.rule_changes import profile
from fourfold.server.audit import record_command
from fourfold.server.auth import Access

DID = "did:web:shop.example"
SPACE = (DID,)
LISTS = {
    "space list": ((), "spaces"),
    "space log": (SPACE, "commits"),
    "space history": ((*SPACE, "note"), "revisions"),
    "space diff": ((*SPACE, "--at", "1"), "changes"),
    "space find": (SPACE, "documents"),
    "space facets": ((*SPACE, "n"), "facets"),
    "space index list": (SPACE, "indexes"),
    "space branch list": (SPACE, "branches"),
    "space blob list": (SPACE, "blobs"),
    "stream list": ((), "streams"),
    "stream keys": (("orders",), "keys"),
    "stream read": (("orders",), "records"),
    "stream search": (("orders",), "items"),
    "stream stats": (("orders", "--by", "id"), "rows"),
    "stream state": (("state",), "state"),
    "stream touch show": (("state",), "templates"),
    "session list": ((), "sessions"),
    "session show": (("s-1",), "transcript"),
    "session leases": ((), "leases"),
    "session policies": ((), "policies"),
    "session search": (("hello",), "hits"),
    "memory names": ((), "memories"),
    "memory list": (("agent",), "items"),
    "memory namespaces": (("agent",), "namespaces"),
    "memory history": (("agent", "users/ada", "tea"), "versions"),
    "memory diff": (("agent", "1"), "changes"),
    "memory search": (("agent", "green"), "hits"),
    "app list": ((), "apps"),
    "app types": (("notes",), "types"),
    "app describe": (("notes",), "types"),
    "app stats": ((), "tables"),
    "app query": (("notes",), "rows"),
    "app history": (("notes", "parent", "1"), "versions"),
    "app trace": (("notes", "t"), "envelopes"),
    "app feed": ((), "changes"),
    "app find": (("notes", "title"), "rows"),
    "app top": (("notes", "stars"), "objects"),
    "app neighbours": (("notes", "1"), "objects"),
    "app match": (("notes", '{"nodes": {"a": {}}}'), "rows"),
    "app path": (("notes", "1", "1"), "path"),
    "app sync peer": ((), "peers"),
    "app sync identities": ((), "identities"),
    "app sync status": ((), "progress"),
    "app sync allow": ((), "rights"),
    "app sync refusals": ((), "refusals"),
    "app sync forks": ((), "forks"),
    "app sync parked": ((), "parked"),
    "pipeline list": (None, "jobs"),
    "pipeline status": ((), "runs"),
    "pipeline history": ((), "runs"),
    "config": ((), "settings"),
    "verify": ((), "checked"),
    "show": ((), "models"),
    "key list": ((), "keys"),
    "audit": ((), "entries"),
    "publish": (("--points",), "points"),
}
"""Arguments after ROOT, and the key of the list in the JSON document."""
OTHERWISE = {
    "space search",
    "space follow",
    "space ids",
    "stream tail",
    "stream follow",
    "session log",
    "app sync domain",
    "sql",
    "job list",
    "doctor",
}
"""Lists whose rows are not the records of their JSON document, or that need a server; they have
tests of their own."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.transact([{"op": "set", "id": "note", "value": {"title": "a,b\nc", "n": 1}}])
        space.transact([{"op": "set", "id": "other", "value": {"on": True}}])
        space.branches.create("draft")
        space.indexes.create("by_n", "/n")
        space.blobs.put(b"bytes", "text/plain")
        store.streams.create("orders", "application/json").append({"id": 1}, key="k")
        state = store.streams.create("state", "application/json")
        store.streams.profiles.put("state", profile("state-protocol", True, None, None))
        change = {"type": "t", "key": "k", "value": {"a": 1}}
        state.append({**change, "headers": {"operation": "upsert"}})
        store.sessions.create_session({"id": "s-1"})
        message = {"role": "user", "content": "Hello"}
        store.sessions.append_event("s-1", {"type": "message/appended", "message": message})
        store.sessions.claim("s-1", "worker")
        store.sessions.set_retention("s-", max_age_s=3600.0)
        for kind in ("green", "black"):
            store.memory("agent").put(("users", "ada"), "tea", {"likes": f"{kind} and green tea"})
        app = store.graphs.register_app("notes", "Notes")
        for kind, key in (("parent", "note"), ("attr", "title"), ("rating", "stars")):
            store.graphs.register_type(app.app_id, kind, key)
        operation = {"app_id": app.app_id, "owner_identity": 0, "op": "parent_create"}
        store.graphs.apply(
            {"trace_id": "t", "ops": [{**operation, "type_key": "note", "payload": {}}]}
        )
        store.publish()
    with Access(root) as access:
        access.add(("read", "write"), "shop/", "a label")
    record_command(root, "create_key", "/v1/keys/0123abcd")
    return root


def arguments(name, root):
    rest, _ = LISTS[name]
    return name.split() + ([] if rest is None else [str(root), *rest])


def test_every_command_with_rows_is_tested():
    with_rows = {
        name
        for name, command in COMMANDS.items()
        if any("--csv" in param.opts for param in command.params)
    }
    assert with_rows == set(LISTS) | OTHERWISE


@pytest.mark.parametrize("name", LISTS)
def test_rows_are_those_of_the_json_document(name, store, call):
    document = call(*arguments(name, store), "--json").document
    records = document[LISTS[name][1]]
    lines = call(*arguments(name, store), "--ndjson")
    assert (lines.code, lines.err) == (0, "")
    assert [json.loads(line) for line in lines.out.splitlines()] == records
    table = call(*arguments(name, store), "--csv")
    assert (table.code, table.err) == (0, "")
    header, *rows = csv.reader(io.StringIO(table.out))
    assert len(rows) == len(records)
    for record, row in zip(records, rows, strict=True):
        assert set(record) == set(header)
        cells = dict(zip(header, row, strict=True))
        for field, value in record.items():
            if isinstance(value, str) or value is None:
                assert cells[field] == (value or "")
            else:
                assert json.loads(cells[field]) == value


def test_ids_domains_and_events_have_rows(store, call):
    assert call("space", "ids", store, DID, "--csv").out == "id\nnote\nother\n"
    lines = call("space", "ids", store, DID, "--ndjson").out.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": "note"}, {"id": "other"}]
    assert call("app", "sync", "domain", store, "--csv").out == "domain,mask\n"
    header, *rows = csv.reader(io.StringIO(call("session", "log", store, "s-1", "--csv").out))
    assert header == ["id", "at", "type", "position", "data"]
    assert json.loads(rows[-1][-1])["message"]["content"] == "Hello"
    document = call("session", "log", store, "s-1", "--json").document
    lines = call("session", "log", store, "s-1", "--ndjson").out.splitlines()
    assert [json.loads(line) for line in lines] == document["events"]
    [record] = call("stream", "tail", store, "orders", "--ndjson").out.splitlines()
    assert json.loads(record)["record"] == '{"id":1}'
    findings = call("doctor", store, "--ndjson").out.splitlines()
    assert {"check", "status", "message", "fix", "facts"} == set(json.loads(findings[0]))


def test_only_the_points_of_publish_have_rows(call, store):
    done = call("publish", store, "--csv")
    assert done.code == 2
    assert "--csv requires --points" in done.err


def test_only_one_format_may_be_chosen(call, store):
    done = call("space", "list", store, "--csv", "--json")
    assert done.code == 2
    assert "only one of --json, --csv and --ndjson" in done.err


def test_error_is_json_with_ndjson(call):
    assert call("space", "list", "nowhere", "--ndjson").error["kind"] == "not_found"
    assert call("space", "list", "nowhere", "--csv").err.startswith("error[not_found]: ")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("space list", "spaces"),
        ("stream list", "streams"),
        ("session list", "sessions"),
        ("app list", "apps"),
        ("app stats", "tables"),
        ("app feed", "changes"),
        ("app sync peer", "peers"),
        ("app sync identities", "identities"),
        ("app sync status", "progress"),
        ("app sync allow", "rights"),
        ("app sync refusals", "refusals"),
        ("app sync forks", "forks"),
        ("app sync parked", "parked"),
        ("app sync domain", "domains"),
        ("pipeline status", "runs"),
        ("pipeline history", "runs"),
        ("key list", "keys"),
    ],
)
def test_empty_list_of_a_sound_store_is_not_an_error(name, key, root, call):
    files = sorted(root.rglob("*"))
    done = call(*name.split(), root, "--json")
    assert (done.code, done.err) == (0, "")
    assert len(done.document[key]) == 0
    text = call(*name.split(), root)
    assert (text.code, text.err) == (0, "")
    assert sorted(root.rglob("*")) == files
    other = root.parent / "not-a-store"
    other.mkdir()
    assert call(*name.split(), other, "--json").error["kind"] == "not_found"


def test_empty_model_has_no_totals_and_no_problems(root, call):
    totals = call("stream", "stats", root, "--json").document
    assert totals == {"streams": 0, "records": 0, "bytes": 0}
    assert call("stream", "stats", root).out == "0 streams, 0 records, 0 B\n"
    assert call("session", "verify", root, "--json").document["ok"]
    assert call("session", "gc", root, "--json").document["payloads"] == 0
    assert call("app", "gc", root, "--json").document["cached"] == 0
    assert call("stream", "gc", root, "--json").document["records"] == 0
    empty = "0 cached results and 0 idempotency keys (0 B) would be removed\n"
    assert call("app", "gc", root, "--dry-run").out == empty
    assert call("stream", "read", root, "orders", "--json").error["kind"] == "not_found"
    assert call("app", "stats", root, "notes", "--json").error["kind"] == "not_found"
    assert call("app", "sync", "domain", root, "a", "1", "--json").error["kind"] == "not_found"


def test_history_without_revisions_is_an_empty_list(store, call):
    done = call("space", "history", store, DID, "note", "--after", "9")
    assert (done.code, done.err) == (0, "")
    assert "no revisions after seq 9" in done.out


def test_csv_of_no_rows_has_a_header():
    stream = io.StringIO()
    out = Output("csv", stdout=stream, stderr=stream)
    out.rows({"rows": []}, "rows", {}, fields=("a", "b"), empty="nothing")
    assert stream.getvalue() == "a,b\n"
