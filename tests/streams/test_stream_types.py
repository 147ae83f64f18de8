"""Lists of streams by content type: Python, HTTP, client, command line and explorer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.cli.main import app
from fourfold.models.streams import listing
from fourfold.models.streams.validation import plain_type
from server.served_streams import Served

TYPES = ["application/json", "text/plain; charset=utf-8", "Text/Plain", "application/octet-stream"]
TEXTS = ["s1", "s2", "s5", "s6", "s9"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("types") / "store"
    with fourfold.open(root) as store:
        for number in range(10):
            store.streams.create(f"s{number}", content_type=TYPES[number % 4])
    return root


@pytest.fixture(scope="module")
def store(root):
    with fourfold.open(root, mode="r") as store:
        yield store


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("types") / "served"
    with fourfold.open(root) as store:
        for number in range(10):
            store.streams.create(f"s{number}", content_type=TYPES[number % 4])
    server = Served(root)
    yield server
    server.kill()


def names(infos):
    return [info.name for info in infos]


def test_streams_are_listed_by_type_without_its_parameters(store):
    streams = store.streams
    assert names(streams.list(content_type="text/plain")) == TEXTS
    assert names(streams.list(content_type="TEXT/PLAIN; charset=latin-1")) == TEXTS
    assert names(streams.list(content_type="text/plain", limit=2)) == TEXTS[:2]
    assert names(streams.list(content_type="text/plain", after="s2")) == TEXTS[2:]
    assert names(streams.list(content_type="text/plain", prefix="s5")) == ["s5"]
    assert streams.list(content_type="image/png") == ()


@given(
    kind=st.sampled_from(["", *TYPES, "image/png"]),
    after=st.sampled_from(["", "s0", "s3", "s9", "z"]),
    limit=st.integers(1, 12),
    most=st.integers(1, 12),
)
def test_pages_continue_where_the_last_one_ended(store, kind, after, limit, most):
    streams = store.streams
    wanted = listing.parse_filter("", kind)
    result, start = [], after
    while start is not None:
        with streams.database.read_current() as snapshot:
            page = listing.scan_streams(
                *(snapshot, wanted),
                after=start,
                limit=limit,
                now=store.streams.read_clock(),
                streams_max=most,
            )
        assert len(page.infos) <= limit
        result += names(page.infos)
        start = page.next_after
    every = streams.list(after=after)
    assert result == [
        info.name for info in every if not kind or plain_type(info.content_type) == plain_type(kind)
    ]


def test_one_page_reads_a_bounded_number_of_streams(store):
    with store.streams.database.read_current() as snapshot:
        wanted = listing.parse_filter("", "image/png")
        page = listing.scan_streams(
            snapshot, wanted, after="", limit=1, now=store.streams.read_clock(), streams_max=4
        )
    assert page == ([], "s3")


def test_api_and_client_list_by_type(served):
    answer = served.ask("GET", "/v1/streams?content_type=text/plain&limit=3")
    page = json.loads(answer.text)
    assert [row["name"] for row in page["streams"]] == TEXTS[:3]
    assert page["next_after"] == "s5"
    answer = served.ask("GET", "/v1/streams?content_type=image/png")
    assert json.loads(answer.text) == {"streams": [], "next_after": None}
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as remote:
        assert names(remote.streams.list(content_type="text/plain")) == TEXTS


def test_command_line_lists_by_type(root):
    arguments = ["stream", "list", str(root), "--content-type", "text/plain", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [row["name"] for row in json.loads(result.stdout)["streams"]] == TEXTS


def test_explorer_filters_streams_by_type(served):
    page = json.loads(served.ask("GET", "/streams.json?type=text/plain").text)
    assert [row["name"] for row in page["streams"]] == TEXTS
    assert page["next_after"] is None
    html = served.ask("GET", "/streams?type=text/plain", headers={"Accept": "text/html"}).text
    assert b'name="type" value="text/plain"' in html
    none = served.ask("GET", "/streams?type=image/png", headers={"Accept": "text/html"}).text
    assert b"No stream of this type" in none
