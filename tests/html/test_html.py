"""Fragments for notebooks: everything is escaped, long values and tables are shortened."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold import html

ATTACK = "<script>alert('x')</script>&\"'"


class Tags(HTMLParser):
    """Collects the tags of a fragment, and its text."""

    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        del attrs
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def parse(fragment):
    parser = Tags()
    parser.feed(fragment)
    parser.close()
    return parser


@pytest.mark.parametrize("function", [html.text, html.code, html.block])
@given(value=st.text())
def test_values_become_text_and_never_tags(function, value):
    tags = parse(function(value)).tags
    assert set(tags) <= {"code", "pre"}


@given(value=st.text(max_size=200))
def test_text_is_readable_again(value):
    assert "".join(parse(f"<p>{html.text(value)}</p>").words) == value


def test_tables_escape_columns_and_cells():
    shown = html.table([ATTACK], [[ATTACK], [html.code("a")]])
    assert "script" not in parse(shown).tags
    assert parse(shown).tags.count("code") == 1


def test_long_tables_count_the_rows_that_they_leave_out():
    shown = html.table(["n"], ([n] for n in range(html.ROWS_MAX + 3)))
    assert parse(shown).tags.count("td") == html.ROWS_MAX
    assert "3 more rows" in shown


def test_long_values_count_the_characters_that_they_leave_out():
    assert html.text("x" * (html.TEXT_MAX + 5)).endswith("(5 more characters)")


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


def shown_records(store):
    """What a notebook shows of every record that has a fragment of its own, with hostile text."""
    space = store.space("did:web:a.example")
    yield space.set(ATTACK, {ATTACK: ATTACK})
    yield space.read(ATTACK)
    space.branches.create("draft")
    space.set(ATTACK, {ATTACK: 1}, branch="draft")
    yield space.diff("draft", 2, None)
    yield space.log()
    yield space.history(ATTACK)
    yield space.branches.merge("draft", dry_run=True)
    space.set(ATTACK, {ATTACK: 2})
    yield space.branches.merge("draft", dry_run=True)
    stream = store.streams.create("clicks", "application/json")
    stream.append({ATTACK: ATTACK})
    yield stream.read()
    yield stream.read().records[0]
    session = store.sessions.create({"id": "s", "title": ATTACK})
    session.append({"type": "message/appended", "message": {"role": "user", "content": ATTACK}})
    yield session.read()
    yield session.log()
    yield session
    yield space


def test_handles_show_what_they_contain(store):
    space = store.space("did:web:a.example")
    space.set("order:1", {"total": 70})
    stream = store.streams.create("clicks", "application/json")
    stream.append([{"n": 1}, {"n": 2}])
    space.branches.create("draft")
    handles = (store, space, stream, space.branches)
    shown = [parse(handle._repr_html_()).words for handle in handles]
    assert "did:web:a.example" in shown[0]
    assert "order:1" in shown[1]
    assert shown[2][shown[2].index("records") + 1] == "2"
    assert "draft" in shown[3]


def test_records_show_hostile_text_as_text(store):
    for record in shown_records(store):
        shown = parse(record._repr_html_())
        assert "script" not in shown.tags, record
        assert any("alert" in word for word in shown.words), record
