"""Search on the page of a stream: hits with highlights, facets, pages and problems."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from shop_store import PROBE
from test_pages_over_http import get, text_of

import fourfold
from server.served_streams import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("search") / "store"
    with fourfold.open(root, settings={"archive.seal_rows": 20}) as store:
        logs = store.streams.create("team/logs", content_type="application/json")
        logs.set_schema(
            search={"text": ["message"], "columns": ["service", "status"], "timestamp": "time"}
        )
        logs.append(
            [
                {
                    "message": f"Slow plan {number}" if number % 2 else f"fine <b>{PROBE}",
                    "service": "auth" if number % 3 else "pay",
                    "status": 200 + number % 2,
                    "time": 1_000 * number,
                }
                for number in range(80)
            ]
        )
        store.archive.publish_all()
        store.archive.build_companions()
        logs.append({"message": "slow tail", "service": "auth", "time": 90_000})
    server = Served(root)
    yield server
    server.kill()


def page(served, query):
    return json.loads(get(served, f"/stream.json?name=team/logs&{query}").text)


def test_hits_are_highlighted_newest_first(served):
    text = text_of(get(served, "/stream?name=team/logs&q=slow"))
    assert "<mark>slow</mark> tail" in text
    assert "<mark>Slow</mark> plan 79" in text
    assert "41 messages match." in text
    assert "4 of 4 segments by their companions" in text
    found = page(served, "q=slow")
    assert [row["number"] for row in found["hits"]][:3] == [80, 79, 77]
    assert found["total"] == {"value": 41, "exact": True}


def test_older_matches_are_on_the_next_page(served):
    first = page(served, "q=slow")
    assert len(first["hits"]) == 25
    second = page(served, f"q=slow&hits={quote(first['hits_after'])}")
    assert len(second["hits"]) == 16
    assert second["hits_after"] is None
    assert second["hits"][-1]["number"] == 1


def test_facets_narrow_the_search(served):
    found = page(served, "q=slow")
    [service, status] = found["facets"]
    counts = [(row["value"], row["count"]) for row in service["rows"]]
    assert (service["field"], counts) == ("service", [("auth", 28), ("pay", 13)])
    assert [(row["value"], row["count"]) for row in status["rows"]] == [(201, 40)]
    narrowed = page(served, f"q=slow&where={quote(service['rows'][1]['where'])}")
    assert narrowed["total"]["value"] == 13
    # The next facet adds to the filter.
    where = json.loads(narrowed["facets"][1]["rows"][0]["where"])
    assert where == {"service": "pay", "status": 201}
    assert quote(service["rows"][1]["where"], safe="") in text_of(
        get(served, "/stream?name=team/logs&q=slow")
    )


def test_page_without_search_reads_nothing(served):
    found = page(served, "")
    assert (found["hits"], found["facets"]) == (None, [])
    assert 'name="q"' in text_of(get(served, "/stream?name=team/logs"))


@pytest.mark.parametrize("query", ["q=(a", "where={", "q=a&hits=x"])
def test_invalid_search_is_explained_on_the_page(served, query):
    answer = get(served, f"/stream?name=team/logs&{query}")
    assert answer.status == 200
    found = page(served, query)
    assert (found["hits"], bool(found["search_problem"])) == ([], True)


def test_search_as_of_a_time_shows_what_had_been_appended(served):
    found = page(served, "q=slow&at=2001-01-01")
    assert (found["hits"], found["total"], found["facets"]) == ([], None, [])


def test_hits_are_escaped(served):
    text = text_of(get(served, "/stream?name=team/logs&q=fine"))
    assert "<mark>fine</mark> &lt;b&gt;" in text
    assert "<img" not in text
    assert "<script>alert" not in text
