"""Tokens and text queries: what a scan finds is what FTS5 finds in the searchable form."""

from __future__ import annotations

import unicodedata

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import text
from fourfold.errors import InvalidInput
from support.properties import THOROUGH

WORDS = [
    "red",
    "Red",
    "rédiger",
    "re",
    "straße",
    "STRASSE",
    "b-c",
    "x_1",
    "naïve",
    "日本",
    "हिन्दी",
    "½",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.text(max_size=20),
    st.text(
        alphabet=st.sampled_from("aAéÉe\u0301ß\u017fİ\u0131ǅﬁ①½٣²\u0345ꙮ ,-_\"'*\0\u200d"),
        max_size=12,
    ),
)
PARTS = st.tuples(
    st.sampled_from(["", "", "-"]),
    st.sampled_from([*WORDS, '"red re"', '"b c"', "re*", "ré*", "st*"]),
).map("".join)


def fts5(texts):
    connection = apsw.Connection(":memory:")
    connection.execute(f"create virtual table t using fts5(body, tokenize='{text.FTS5_TOKENIZER}')")
    for number, body in enumerate(texts):
        connection.execute(
            "insert into t (rowid, body) values (?, ?)", (number, text.searchable(body))
        )
    return connection


@given(
    texts=st.lists(TEXTS, max_size=5),
    parts=st.lists(PARTS, max_size=3),
    word=st.sampled_from(WORDS),
)
def test_scan_and_full_text_index_find_the_same_texts(texts, parts, word):
    query = text.parse_text_query(" ".join([word, *parts]))
    rows = fts5(texts).execute("select rowid from t where t match ?", (query.match_expression(),))
    expected = [number for number, body in enumerate(texts) if query.matches(body)]
    assert [number for (number,) in rows] == expected


def test_full_text_index_has_the_tokens_of_every_character():
    """Of those from U+20000 on, which are nearly all ideographs, some; in a thorough run all."""
    codes = [*range(1, 0x20000), *range(0x20000, 0x110000, 1 if THOROUGH else 101)]
    chars = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    connection = apsw.Connection(":memory:")
    connection.execute(f"create virtual table t using fts5(body, tokenize='{text.FTS5_TOKENIZER}')")
    connection.execute("create virtual table v using fts5vocab(t, instance)")
    pages = [
        " ".join(f"x{char}y" for char in chars[at : at + 4096]) for at in range(0, len(chars), 4096)
    ]
    connection.executemany(
        "insert into t (rowid, body) values (?, ?)",
        [(number, text.searchable(page)) for number, page in enumerate(pages)],
    )
    indexed = {}
    for number, token in connection.execute("select doc, term from v order by doc, offset"):
        indexed.setdefault(number, []).append(token)
    for number, page in enumerate(pages):
        assert text.tokens(page) == indexed[number]


@given(TEXTS)
def test_searchable_form_is_stable_and_ignores_composition(body):
    form = text.searchable(body)
    assert text.searchable(form) == form
    assert text.tokens(form) == text.tokens(body)
    assert text.tokens(unicodedata.normalize("NFC", body)) == text.tokens(body) or "\u0345" in (
        unicodedata.normalize("NFD", body)
    )


@given(TEXTS)
def test_tokens_with_places_are_the_tokens(body):
    places = list(text.iter_tokens(body))
    assert [place.token for place in places] == text.tokens(body)
    for place in places:
        assert 0 <= place.start < place.end <= len(body)
        assert place.token in text.tokens(body[place.start : place.end])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Crème brûlée, 2 pieces", ["creme", "brulee", "2", "pieces"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ("日本語 हिन्दी", ["日本語", "हिन्दी"]),
        ("", []),
        ("a\0b", ["a", "b"]),
    ],
)
def test_tokens(body, expected):
    assert text.tokens(body) == expected


def test_long_token_is_cut_as_in_the_index():
    body = "é" + "a" * 40_000
    connection = fts5([body, "other"])
    for query in (body, "e" + "a" * 100 + "*"):
        expression = text.TextPart(
            tuple(text.tokens(query)), query.endswith("*")
        ).match_expression()
        assert list(connection.execute("select rowid from t where t match ?", (expression,))) == [
            (0,)
        ]
    assert [len(token) for token in text.tokens(body)] == [text.TOKEN_CHARS_MAX]


def test_several_texts_match_together_and_phrases_in_one():
    query = text.parse_text_query('red "big car"')
    assert query.matches(["red", "a big car"])
    assert not query.matches(["red big", "car"])
    assert not text.parse_text_query("red -car").matches(["red", "a big car"])


def test_snippet_shows_the_first_match_with_its_place():
    body = "word " * 100 + "Crème brûlée " + "word " * 100
    snippet = text.parse_text_query('"creme brulee"').snippet(body, 60)
    assert [snippet.text[start:end] for start, end in snippet.highlights] == ["Crème brûlée"]
    assert snippet.text.startswith("…")
    assert snippet.text.endswith("…")
    assert text.parse_text_query("nothing").snippet("short") == ("short", ())


def test_overlapping_highlights_are_merged():
    query = text.parse_text_query('"a b" "b c" a')
    assert query.highlights("a b c d a") == [(0, 5), (8, 9)]


@pytest.mark.parametrize("query", ["", "  ", "-red", "!!", '""', None, 3, "a" * 2_001, "a " * 51])
def test_query_without_words_or_too_long_is_refused(query):
    with pytest.raises(InvalidInput):
        text.parse_text_query(query)
