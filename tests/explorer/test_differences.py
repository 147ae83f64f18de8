"""Differences of JSON values, authors of values, and values as HTML."""

from __future__ import annotations

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from fourfold.explorer import branch_graph, drawings, values
from fourfold.explorer.differences import Author, differences, find_authors

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


def rows(before, after):
    return [(row.sign, row.path, row.before, row.after) for row in differences(before, after)]


def test_differences_name_fields_and_elements():
    before = {"a": 1, "items": [{"qty": 1}, {"qty": 2}, {"qty": 9}], "gone": True}
    after = {"a": 2, "items": [{"qty": 1}, {"qty": 3}, {"qty": 9}], "new/key": None}
    assert rows(before, after) == [
        ("~", "/a", 1, 2),
        ("~", "/items/1/qty", 2, 3),
        ("-", "/gone", True, None),
        ("+", "/new~1key", None, None),
    ]


def test_differences_of_lists_skip_the_common_end():
    assert rows({"l": [1, 2, 3]}, {"l": [1, 9, 2, 3]}) == [("+", "/l/1", None, 9)]
    assert rows({"l": [1, 2, 3]}, {"l": [3]}) == [("-", "/l/0", 1, None), ("-", "/l/1", 2, None)]


def test_a_missing_document_differs_as_a_whole():
    assert rows(None, {"a": 1}) == [("+", "", None, {"a": 1})]
    assert rows({"a": 1}, None) == [("-", "", {"a": 1}, None)]


def test_true_is_not_one():
    assert rows({"a": True}, {"a": 1}) == [("~", "/a", True, 1)]


@given(DOCUMENTS)
def test_equal_documents_have_no_differences(document):
    assert differences(document, copy.deepcopy(document)) == []


@given(DOCUMENTS, DOCUMENTS)
def test_different_documents_have_differences(before, after):
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert bool(differences(before, after)) != same


def test_authors_are_the_newest_commits_that_set_a_value():
    document = {"a": 1, "b": {"c": 2, "d": 3}, "l": [1, 2]}
    revisions = [
        Author(9, "patch", [{"op": "append", "path": "/l", "values": [2]}]),
        Author(7, "patch", [{"op": "replace", "path": "/b/c", "value": 2}]),
        Author(5, "patch", [{"op": "replace", "path": "/b", "value": {}}]),
        Author(1, "set", {}),
    ]
    assert find_authors(document, revisions) == {
        "/a": 1,
        "/b/c": 7,
        "/b/d": 5,
        "/l/0": 9,
        "/l/1": 9,
    }


def test_a_path_is_not_within_one_that_only_starts_alike():
    revisions = [Author(2, "patch", [{"op": "replace", "path": "/ab", "value": 1}])]
    assert find_authors({"abc": 1}, revisions) == {}


@given(DOCUMENTS)
def test_values_as_html_have_no_markup_of_their_own(document):
    hostile = {"<script>": document, "x": "</span><script>alert(1)</script>"}
    for html in (values.block(hostile), values.line(hostile), values.message(json.dumps(hostile))):
        assert "<script" not in html
        assert html.count("<span") == html.count("</span>")


def test_a_block_marks_changes_and_authors():
    html = values.block({"a": 1, "b": [2]}, changed={"/b/0"}, authors={"/a": 4})
    assert html.count('class="changed"') == 1
    assert '<span class="by">4</span>' in html


def test_sizes_and_ages_use_one_unit():
    assert [values.size(number) for number in (0, 999, 1500, 3_800_000_000)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "3.8 GB",
    ]
    now = 1_700_000_000_000
    ages = [values.age(now - seconds * 1000, now) for seconds in (0, 41, 120, 7200, 200_000)]
    assert ages == ["now", "41 s ago", "2 min ago", "2 h ago", "2 days ago"]
    assert values.age(now + 5000, now) == "now"
    assert values.age(None, now) == "never"


def test_drawings_have_no_inline_style():
    lanes = [
        branch_graph.Lane("", "main", None, None),
        branch_graph.Lane("<b>", "<b>", "", 1),
    ]
    nodes = [
        branch_graph.Node(1, "", "/?a=1&b=2", "<1>"),
        branch_graph.Node(2, "<b>", "/x", "2"),
        branch_graph.Node(3, "", "/y", "3", source="<b>"),
    ]
    graph = branch_graph.draw(lanes, nodes, branch_graph.Proposal("<b>", "", 1, 4))
    bar = drawings.timebar([drawings.Bar(1, "set", 3, "/a", "<i>")], 1, 1, "label")
    for html in (graph, bar, drawings.sparkline([1, 2], "<x>"), drawings.bars([], "none")):
        assert "style=" not in html
        assert "<b>" not in html
        assert "<i>" not in html
    assert "4, if merged" in graph


def test_prose_marks_code_and_escapes_everything():
    assert values.prose("start `a <b>` & wait") == "start <code>a &lt;b&gt;</code> &amp; wait"
    assert values.prose("a ` alone") == "a ` alone"
