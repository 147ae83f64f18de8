"""What only S3 brings: lost answers, refusals, missing buckets, servers that ignore conditions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from s3_proxy import error, serve

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    Closed,
    InvalidConfig,
    InvalidInput,
    NotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    PreconditionFailed,
    Refused,
)
from fourfold.objects import S3Settings, S3Store, check_conditional_writes
from support.s3_server import S3Server, serve_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def prefix() -> str:
    return f"s3/{uuid.uuid4().hex}"


@pytest.fixture
def store(s3_server: S3Server, prefix: str) -> Iterator[S3Store]:
    with s3_server.store(prefix) as opened:
        yield opened


def once(decision: object, method: str = "PUT") -> Callable[[str, str], object]:
    """The decision for the first request of this method; everything else passes."""
    pending = [decision]
    return lambda seen, _: pending.pop() if seen == method and pending else "pass"


def through(server: S3Server, endpoint: str, prefix: str, **changes: object) -> S3Store:
    return S3Store(server.settings(prefix, endpoint=endpoint, **changes))


def test_create_whose_answer_was_lost_is_not_taken_for_rival(
    s3_server: S3Server, store: S3Store, prefix: str
) -> None:
    with serve(once("lose"), s3_server.endpoint) as (endpoint, log):
        info = through(s3_server, endpoint, prefix).put("k", b"mine", if_absent=True)
    assert log.count("PUT") == 2
    assert store.head("k").version == info.version
    assert store.get("k").data == b"mine"


def test_replace_whose_answer_was_lost_is_not_taken_for_rival(
    s3_server: S3Server, store: S3Store, prefix: str
) -> None:
    first = store.put("k", b"one")
    with serve(once("lose"), s3_server.endpoint) as (endpoint, _):
        info = through(s3_server, endpoint, prefix).put("k", b"two", if_version=first.version)
    assert store.get("k").data == b"two"
    assert store.head("k").version == info.version


def test_rival_is_still_rival_when_first_try_failed(
    s3_server: S3Server, store: S3Store, prefix: str
) -> None:
    def rival_first(method: str, _: str) -> object:
        if method == "PUT" and store.head("k") is None:
            store.put("k", b"mine")
            return error(500, "InternalError")
        return "pass"

    with serve(rival_first, s3_server.endpoint) as (endpoint, _):
        other = through(s3_server, endpoint, prefix)
        # The same bytes make the same ETag; only the mark tells the two writers apart.
        with pytest.raises(AlreadyExists):
            other.put("k", b"mine", if_absent=True)


def test_conditional_writes_that_meet_are_tried_again(
    s3_server: S3Server, store: S3Store, prefix: str
) -> None:
    collision = error(409, "ConditionalRequestConflict")
    with serve(once(collision), s3_server.endpoint) as (endpoint, log):
        through(s3_server, endpoint, prefix).put("k", b"x", if_absent=True)
    assert log == ["PUT", "PUT"]
    with serve(lambda *_: collision) as (endpoint, log):
        with pytest.raises(ObjectStoreError, match="409 ConditionalRequestConflict"):
            through(s3_server, endpoint, prefix, retries_max=1).put("k", b"x", if_absent=True)
        assert log == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (error(401, "Unauthorized"), "credentials, not the network"),
        (error(403, "AccessDenied"), "credentials, not the network"),
        (error(403, "InvalidAccessKeyId"), "credentials, not the network"),
        (error(400, "ExpiredToken"), "credentials, not the network"),
        (error(403, "RequestTimeTooSkewed"), "clock"),
        (error(404, "NoSuchBucket"), "bucket"),
        (error(301, "PermanentRedirect"), "region"),
        (error(307, "TemporaryRedirect"), "region"),
        (error(503, "SlowDown"), "fewer requests"),
        (error(429, "TooManyRequests"), "fewer requests"),
        (error(501, "NotImplemented"), "If-None-Match"),
        (error(500, "InternalError"), "log of the server"),
        (error(400, "BadRequest"), "address"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1].decode()[13:31],
)
def test_every_refusal_says_what_to_do(
    s3_server: S3Server, answer: tuple[int, bytes], hint: str
) -> None:
    calls: dict[str, Callable[[S3Store], object]] = {
        "put": lambda store: store.put("k", b"x"),
        "create": lambda store: store.put("k", b"x", if_absent=True),
        "replace": lambda store: store.put("k", b"x", if_version='"v"'),
        "get": lambda store: store.get("k"),
        "get_range": lambda store: store.get_range("k", 0, 1),
        "list": lambda store: list(store.list()),
        "delete_many": lambda store: store.delete_many(["k"]),
        "upload": lambda store: store.upload("k", [b"x" * 9 * limits.MIB]),
    }
    with serve(lambda *_: answer) as (endpoint, _):
        for name, call in calls.items():
            with pytest.raises(ObjectStoreError) as caught:
                call(through(s3_server, endpoint, "p", retries_max=0))
            assert type(caught.value) in {ObjectStoreError, ObjectStoreDenied}, name
            # What only a person can mend is not worth trying again.
            again = hint in {"fewer requests", "log of the server", "address"}
            assert caught.value.retryable is again, name
            assert hint in caught.value.hint, name
            assert "Debug" not in str(caught.value)
            assert "<Error>" not in str(caught.value)


def test_unreachable_server_differs_from_bad_credentials(s3_server: S3Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        closed_port = socket.create_server(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed_port.getsockname()[1]}"
        closed_port.close()
        never = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for endpoint in (refused, never, "https://no-such-host.invalid"):
            store = through(s3_server, endpoint, "p", retries_max=0, timeout_s=0.5)
            for call in (store.head, store.get, lambda key, store=store: store.put(key, b"")):
                with pytest.raises(ObjectStoreError) as caught:
                    call("k")
                assert "network, not the credentials" in caught.value.hint
                assert endpoint in str(caught.value)


def test_missing_credentials_are_named(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    settings = S3Settings(s3_server.bucket, endpoint=s3_server.endpoint, retries_max=0)
    with pytest.raises(ObjectStoreError) as caught:
        S3Store(settings).get("k")
    assert "No credentials were found" in caught.value.hint


def test_a_missing_bucket_is_no_missing_object(s3_server: S3Server) -> None:
    store = S3Store(s3_server.settings(bucket="no-such-bucket"))
    calls: list[Callable[[], object]] = [
        lambda: store.head("k"),
        lambda: store.get("k"),
        lambda: store.get_range("k", 0, 0),
        lambda: next(store.read("k", 1)),
        lambda: store.delete("k"),
        lambda: store.put("k", b"x", if_version='"v"'),
        lambda: list(store.list()),
    ]
    for call in calls:
        with pytest.raises(ObjectStoreError, match="NoSuchBucket") as caught:
            call()
        assert "bucket" in caught.value.hint


def test_a_server_that_ignores_conditions_is_found_out(s3_server: S3Server) -> None:
    honest = s3_server.store("probe")
    assert check_conditional_writes(honest).honoured
    assert list(honest.list()) == []
    with serve_s3(ignore_conditions=True) as server, server.store() as careless:
        report = check_conditional_writes(careless)
        assert not report.honoured
        assert len(report.faults) == 3
        assert list(careless.list()) == []


def test_a_server_that_refuses_the_right_version_is_found_out(
    s3_server: S3Server, prefix: str
) -> None:
    refusing = [error(412, "PreconditionFailed")]

    def refuse_third(method: str, _: str) -> object:
        counted.append(method)
        return refusing[0] if method == "PUT" and counted.count("PUT") == 3 else "pass"

    counted: list[str] = []
    with serve(refuse_third, s3_server.endpoint) as (endpoint, _):
        report = check_conditional_writes(through(s3_server, endpoint, prefix))
    assert report.faults == ("conditional replace (If-Match) rejected the current version",)


def test_a_listing_out_of_order_is_refused(s3_server: S3Server) -> None:
    def entry(key: str) -> str:
        return (
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            '<ETag>"v"</ETag><Size>1</Size></Contents>'
        )

    page = f"<ListBucketResult>{entry('b')}{entry('a')}</ListBucketResult>".encode()
    with (
        serve(lambda *_: (200, page)) as (endpoint, _),
        through(s3_server, endpoint, "") as store,
        pytest.raises(ObjectStoreError, match="'a' is listed after 'b'"),
    ):
        list(store.list())


def test_foreign_objects_in_the_bucket_are_not_listed(s3_server: S3Server, prefix: str) -> None:
    with s3_server.store() as whole, s3_server.store(prefix) as store:
        store.put("mine", b"x")
        whole._client.put(f"{prefix}/back\\slash", b"foreign")
        whole.put(f"{prefix}2/other", b"x")
        assert [info.key for info in store.list()] == ["mine"]
        assert [info.key for info in store.list("m")] == ["mine"]
        assert f"{prefix}2/other" in {info.key for info in whole.list("s3/")}


def test_prefix_of_store_counts_towards_length_of_key(s3_server: S3Server) -> None:
    key = "/".join(["k" * 203] * 5)
    with s3_server.store("p") as store:
        store.put(key, b"x")
        assert store.get(key).data == b"x"
    with s3_server.store("prefix") as store, pytest.raises(InvalidInput, match="together"):
        store.put(key, b"x")


def test_a_large_conditional_upload_leaves_no_spool_file(
    s3_server: S3Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(s3_server.settings(prefix), spool_folder=tmp_path)

    def chunks() -> Iterator[bytes]:
        return (b"x" * limits.MIB for _ in range(10))

    assert store.upload("k", chunks(), if_absent=True).size == 10 * limits.MIB
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(limits, "OBJECT_PUT_BYTES_MAX", 9 * limits.MIB)
    with pytest.raises(InvalidInput):
        store.upload("larger", chunks(), if_absent=True)
    assert [info.key for info in store.list()] == ["k"]
    assert list(tmp_path.iterdir()) == []


def test_upload_that_is_too_large_for_its_parts_is_refused(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fourfold.objects.s3.OBJECT_UPLOAD_PARTS_MAX", 1)
    with pytest.raises(InvalidInput, match="more than"):
        store.upload("k", (b"x" * limits.MIB for _ in range(20)))
    assert store.head("k") is None


def test_failed_upload_leaves_no_parts(s3_server: S3Server, store: S3Store) -> None:
    boto3 = pytest.importorskip("boto3")

    def chunks() -> Iterator[bytes]:
        yield b"x" * 20 * limits.MIB
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        store.upload("k", chunks())
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    assert client.list_multipart_uploads(Bucket=s3_server.bucket).get("Uploads", []) == []


def test_object_deleted_while_being_read_is_error_not_short_read(store: S3Store) -> None:
    store.put("k", b"x" * 20 * limits.MIB)
    reading = store.read("k", 8 * limits.MIB)
    assert len(next(reading)) == 8 * limits.MIB
    store.delete("k")
    with pytest.raises((NotFound, PreconditionFailed)):
        list(reading)


def test_child_of_fork_is_refused_instead_of_waiting_for_ever(s3_server: S3Server) -> None:
    script = """
import os, sys
from fourfold.errors import FourfoldError
from fourfold.objects import S3Settings, S3Store
settings = S3Settings(sys.argv[2], endpoint=sys.argv[1], access_key_id="t", secret_access_key="t")
store = S3Store(settings)
store.head("k")
if os.fork() == 0:
    for call in (lambda: store.head("k"), lambda: S3Store(settings)):
        try:
            call()
        except FourfoldError as exc:
            print(type(exc).__name__, flush=True)
    os._exit(0)
os.wait()
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, s3_server.endpoint, s3_server.bucket],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == [Closed.__name__, Refused.__name__]


@pytest.mark.parametrize(
    "changes",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"prefix": "/p"},
        {"prefix": "p//q"},
        {"endpoint": "ftp://x"},
        {"endpoint": "localhost:9000"},
        {"endpoint": "http://example.org"},
        {"endpoint": "https://user:word@example.org"},
        {"endpoint": "https://example.org:port"},
        {"access_key_id": "only"},
        {"secret_access_key": "only"},
        {"session_token": "only"},
        {"timeout_s": 0},
        {"retries_max": -1},
        {"retries_max": 1_000},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_at_once(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        S3Store(S3Settings(**({"bucket": "bucket"} | changes)))


def test_plain_http_requires_loopback_or_an_option() -> None:
    for endpoint in ("http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9"):
        S3Store(S3Settings("bucket", endpoint=endpoint))
    S3Store(S3Settings("bucket", endpoint="http://example.org", allow_http=True))


def test_secrets_are_not_shown() -> None:
    settings = S3Settings(
        "bucket", access_key_id="id", secret_access_key="hush", session_token="quiet"
    )
    shown = repr(settings) + repr(S3Store(settings))
    assert "hush" not in shown
    assert "quiet" not in shown


def test_the_environment_fills_in_what_is_not_given(
    s3_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with S3Store(S3Settings(s3_server.bucket, prefix=prefix)) as store:
        store.put("k", b"x", if_absent=True)
        assert store.get("k").data == b"x"
