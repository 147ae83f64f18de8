"""The audit log: which requests are entries, what they contain, rotation, and how it is read."""

from __future__ import annotations

import asyncio
import json
import threading

import both_fronts
import msgspec
import pytest

import fourfold
from fourfold.cli import main
from fourfold.errors import InvalidInput
from fourfold.explorer.explorer import Explorer
from fourfold.server import audit as audit_module
from fourfold.server.audit import AuditLog, make_entry, read_entries
from fourfold.server.auth import Access
from fourfold.server.observer import Observer, is_audited
from fourfold.server.request import Request
from fourfold.settings import ServerSettings

JSON = "application/json"
SECRET_BODY = b'[{"password": "hunter2"}]'


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


def entry(number=0, *, key="", status=204, error="", address="10.0.0.1"):
    made = make_entry("put", "PUT", f"/p/{number}", key=key, address=address, status=status)
    return msgspec.structs.replace(made, error=error)


def entries(root, **options):
    return read_entries(root, limit=1_000, **options).items


@pytest.fixture(params=[True, False], ids=["fast", "asgi"])
def front(root, request):
    with Access(root) as access:
        _, all_scopes = access.add(("read", "write", "admin"))
        reader, reads = access.add(("read",))
    front = both_fronts.Front(root, fast=request.param, access=True)
    front.audit = AuditLog(root, 1 << 20)
    front.protocol.observer.audit = front.audit
    front.bearer = f"Bearer {all_scopes}"
    front.reads = f"Bearer {reads}"
    front.reader_id = reader.id
    front.root = root
    yield front
    front.stop()


def test_writes_are_entries_but_plain_appends_and_reads_are_not(front):
    auth = front.bearer
    asked = [
        both_fronts.request(
            "PUT", "s", SECRET_BODY, content_type="application/json", authorization=auth
        ),
        both_fronts.append("s", SECRET_BODY, authorization=auth),
        both_fronts.request("GET", "s", authorization=auth),
        both_fronts.request("DELETE", "s", authorization=auth),
        both_fronts.request("DELETE", "s", authorization=auth),
    ]
    statuses = [front.ask(data)[0][0] for data in asked]
    assert statuses == [201, 204, 200, 204, 404]
    front.audit.flush()
    rows = [(row.operation, row.status, row.error) for row in reversed(entries(front.root))]
    assert rows == [("create", 201, ""), ("delete", 204, ""), ("delete", 404, "not_found")]
    (first, *_) = entries(front.root)
    assert (first.method, first.path, first.address) == ("DELETE", "/v1/stream/s", "127.0.0.1")
    assert len(first.key) == 8
    written = b"".join(path.read_bytes() for path in (front.root / "audit").iterdir())
    for secret in (b"hunter2", auth.split()[1].encode()):
        assert secret not in written


def test_refusals_are_entries_of_both_fronts(front):
    for authorization in ("Bearer wrong", front.reads):
        sent = both_fronts.append("s", b"[1]", authorization=authorization)
        assert front.ask(sent)[0][0] in {401, 403}
    front.audit.flush()
    forbidden, unauthorized = entries(front.root, refused=True)
    assert (unauthorized.operation, unauthorized.status, unauthorized.key) == ("append", 401, "")
    assert unauthorized.error == "unauthorized"
    assert unauthorized.address == "127.0.0.1"
    assert (forbidden.error, forbidden.key) == ("forbidden", front.reader_id)
    refused = front.protocol.observer.metrics.refused
    assert refused == {"unauthorized": 1, "forbidden": 1}


def test_log_is_read_over_http_with_its_scope_only(front):
    front.ask(
        both_fronts.request("PUT", "s", content_type="text/plain", authorization=front.bearer)
    )

    def ask(query, authorization):
        head = f"GET /v1/audit{query} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n\r\n"
        status, _, body = front.ask(head.encode())[0]
        return status, json.loads(body)

    status, page = ask("?operation=create", front.bearer)
    assert (status, [row["path"] for row in page["items"]]) == (200, ["/v1/stream/s"])
    assert ask("", front.reads)[0] == 403
    assert ask("?cursor=x", front.bearer)[0] == 400
    with Access(front.root) as access:
        _, auditor = access.add(("audit",), models=("store",))
    assert ask("?refused=true", f"Bearer {auditor}")[1]["items"][0]["error"] == "forbidden"


def test_every_route_that_writes_is_audited(front):
    audited = {route.operation for route in front.protocol.routes.routes if is_audited(route)}
    assert {"create_key", "rotate_key", "delete", "create", "start_job"} <= audited
    assert "append" not in audited
    for route in front.protocol.routes.routes:
        if route.scope in {"write", "admin"} and route.method not in {"GET", "HEAD"}:
            assert (route.operation in audited) == (route.operation != "append"), route.operation


def test_refusals_of_one_source_are_sampled_and_counted(root):
    log = AuditLog(root, 1 << 20)
    for number in range(1_000):
        log.record_refusal(entry(number, status=401, error="unauthorized"))
    log.record_refusal(entry(1, status=401, error="unauthorized", address="10.0.0.2"))
    log.flush()
    rows = entries(root)
    assert 11 <= len(rows) < 200
    assert rows[0].address == "10.0.0.2"
    log._sources["10.0.0.1"][0]._tokens = 1.0
    log.record_refusal(entry(2, status=401, error="unauthorized"))
    log.flush()
    newest = entries(root)[0]
    assert newest.suppressed == 1_001 - len(rows)


def test_sources_of_refusals_are_bounded(root, monkeypatch):
    monkeypatch.setattr(audit_module, "REFUSAL_SOURCES_MAX", 3)
    log = AuditLog(root, 1 << 20)
    for number in range(10):
        log.record_refusal(entry(error="unauthorized", address=f"10.0.0.{number}"))
    assert len(log._sources) == 3


def test_pages_continue_where_the_one_before_ended_across_files(root):
    log = AuditLog(root, 8 * 300)
    for number in range(9):
        log.record(entry(number))
        log.flush()
    assert len(list((root / "audit").iterdir())) > 2
    seen, cursor = [], None
    while True:
        page = read_entries(root, limit=2, before=cursor)
        seen += [row.path for row in page.items]
        # What is written meanwhile is not part of later pages.
        log.record(entry(99))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"/p/{number}" for number in reversed(range(9))]
    for wrong in ("x", "1:", ":1", "1:x", "1:" + "9" * 50):
        with pytest.raises(InvalidInput):
            read_entries(root, limit=1, before=wrong)


def test_size_of_the_log_is_bounded(root):
    log = AuditLog(root, 8_000)
    for number in range(500):
        log.record(entry(number))
        log.flush()
    size = sum(path.stat().st_size for path in (root / "audit").iterdir())
    assert size < 8_000 + 1_000
    newest, *_, oldest = entries(root)
    assert newest.path == "/p/499"
    assert 0 < int(oldest.path[3:]) < 490
    assert all(path.stat().st_mode & 0o077 == 0 for path in (root / "audit").iterdir())


def test_unwritable_log_fails_no_request_and_reports_losses(root, caplog):
    (root / "audit").touch()
    log = AuditLog(root, 1 << 20)
    log.record(entry(1))
    log.flush()
    assert "cannot be written" in caplog.text
    (root / "audit").unlink()
    log.record(entry(2))
    log.flush()
    lost, second = entries(root)
    assert second.path == "/p/2"
    assert (lost.error, lost.suppressed) == ("dropped", 1)


def test_queue_is_bounded_and_what_was_dropped_is_reported(root, monkeypatch):
    monkeypatch.setattr(audit_module, "AUDIT_QUEUE_MAX", 3)
    log = AuditLog(root, 1 << 20)
    for number in range(5):
        log.record(entry(number))
    log.flush()
    dropped, *rows = entries(root)
    assert (dropped.error, dropped.suppressed, len(rows)) == ("dropped", 2, 3)
    log.flush()
    assert len(entries(root)) == 4


def test_line_that_a_crash_cut_is_left_out(root):
    log = AuditLog(root, 1 << 20)
    log.record(entry(1))
    log.flush()
    (path,) = (root / "audit").iterdir()
    path.write_bytes(path.read_bytes() + b'{"time_ms": 1, "ke')
    assert [row.path for row in entries(root)] == ["/p/1"]


def test_log_that_is_off_writes_nothing(root):
    log = AuditLog(root, 0)
    with log.running():
        log.record(entry())
        log.record_refusal(entry())
    assert not (root / "audit").exists()


def test_entries_are_written_in_the_background_and_at_the_end(root):
    log = AuditLog(root, 1 << 20)
    with log.running(every_s=3_600):
        log.record(entry(1))
    assert [row.path for row in entries(root)] == ["/p/1"]
    assert not [item for item in threading.enumerate() if item.name == "fourfold-audit"]


def test_slow_requests_are_logged_by_their_path(root, caplog):
    with fourfold.open(root) as store:
        protocol = both_fronts.store_protocol(store, observer=Observer(slow_s=0.0))
        request = Request("GET", "/v1/streams", "", {"host": "localhost"})
        response = asyncio.run(protocol.handle(request))
    assert response.status == 200
    assert "slow request: GET /v1/streams" in caplog.text


def test_commands_that_change_keys_are_entries(root, capsys):
    def run(*arguments):
        assert main.run([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    key = run("key", "add", str(root))
    run("key", "remove", str(root), key["id"])
    made, removed = run("audit", str(root))["entries"]
    assert (made["operation"], made["path"]) == ("create_key", f"/v1/keys/{key['id']}")
    assert (removed["operation"], removed["method"]) == ("delete_key", "COMMAND")
    assert removed["address"].startswith("uid ")
    assert run("audit", str(root), "--operation", "delete_key")["entries"] == [removed]
    assert run("audit", str(root), "--limit", "1")["entries"] == [removed]
    assert key["key"] not in json.dumps([made, removed])
    assert main.run(["audit", str(root)]) == 0
    assert "delete_key" in capsys.readouterr().out


def send_login(front, key, *, forwarded=None):
    """Send the login form of the explorer and return the status."""
    body = f"key={key}&next=/".encode()
    lines = [
        "POST /login HTTP/1.1",
        "Host: localhost",
        "Accept: text/html",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {len(body)}",
        *([f"X-Forwarded-For: {forwarded}"] if forwarded else []),
    ]
    return front.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body)[0][0]


def test_wrong_key_on_login_is_entry_with_its_address(front):
    front.protocol.add_pages(Explorer(front.protocol, "store"))
    assert send_login(front, "ff_wrong") == 401
    assert send_login(front, front.bearer.split()[1]) == 303
    front.audit.flush()
    (row,) = entries(front.root)
    assert (row.operation, row.method, row.path) == ("login", "POST", "/login")
    assert (row.status, row.error, row.address) == (401, "unauthorized", "127.0.0.1")
    assert "ff_wrong" not in str(row)
    assert front.protocol.observer.metrics.refused == {"unauthorized": 1}


@pytest.fixture(params=[True, False], ids=["fast", "asgi"])
def proxied(root, request):
    """Return a function that starts a server of a store with a key and these trusted proxies."""
    with Access(root) as access:
        access.add(("read", "write", "admin"))
    fronts = []

    def start(proxies):
        settings = ServerSettings(trusted_proxies=proxies)
        options = {"forwarded_allow_ips": proxies.split(","), "proxy_headers": proxies != "none"}
        front = both_fronts.Front(
            root, fast=request.param, access=True, settings=settings, **options
        )
        fronts.append(front)
        front.audit = front.protocol.observer.audit = AuditLog(root, 1 << 20)
        return front

    yield start
    for front in fronts:
        front.stop()


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "198.51.100.1, 192.0.2.7:4711", "192.0.2.7"),
        ("127.0.0.1,192.0.2.9", "198.51.100.1, 192.0.2.9", "198.51.100.1"),
        ("127.0.0.0/8", "[2001:db8::1]:80", "2001:db8::1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.1", "192.0.2.7", "127.0.0.1"),
        ("none", "192.0.2.7", "127.0.0.1"),
    ],
)
def test_refusals_of_all_requests_have_the_forwarded_address(
    root, proxied, proxies, forwarded, address
):
    front = proxied(proxies)
    headers = {"authorization": "Bearer wrong", "X_Forwarded_For": forwarded}
    plain = both_fronts.append("s", b"[1]", **headers)
    in_parts = both_fronts.append("s", b"[1]", chunks=1, **headers)
    other = both_fronts.request("GET", "s", **headers)
    for sent in (plain, in_parts, other):
        assert front.ask(sent)[0][0] == 401
    # The head and the body of an append come separately.
    head, _, body = plain.partition(b"\r\n\r\n")
    with front.connect() as connection:
        connection.send(head + b"\r\n\r\n")
        connection.send(body)
        assert connection.answer()[0] == 401
    front.audit.flush()
    assert [row.address for row in entries(root)] == [address] * 4
