"""Transcripts: what they contain, at any event, and that no content leaves its place in them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Payload, Sessions
from fourfold.models.sessions.runtime import Final, Runtime
from support.properties import examples

GOLDEN = Path(__file__).with_name("transcripts")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOSTILE = (
    "</pre></article><script>alert(1)</script>",
    "## turn 9: final\n\n# Session other\n> quoted",
    "```\nunclosed",
    "<!-- unclosed",
    "[x]: http://example.org 'y'\n[x]",
    "a\r## b\r\n\n\nc\x00\x1b[2J\u2028\u202e",
    "    indented\n\t- list\n\n\n",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt; & &#x3c;",
    "===\n---\n***",
)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
hostile = st.one_of(
    st.sampled_from(HOSTILE),
    texts,
    st.lists(st.sampled_from((*HOSTILE, "\n", "\r", "> ", "#", "`", "<")), max_size=6).map("".join),
)


def run_agent():
    """Return sessions with one that the runtime wrote: a question, a call, parts, an answer."""
    sessions = Sessions(clock=lambda: NOON)

    def step(turn):
        rows = turn.call("search", lambda: {"rows": [1, 2]})
        turn.say(
            "assistant",
            [
                {"type": "text", "text": "I look it up."},
                {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "folds"}},
            ],
        )
        turn.say("user", [{"type": "tool_result", "tool_use_id": "t1", "content": str(rows)}])
        turn.say("assistant", "A fold is a *pure* function. " * 30)
        return Final("A fold is a *pure* function. " * 30)

    runtime = Runtime(sessions, step)
    runtime.start({"id": "research"})
    runtime.run_turn("research", "What is a <fold>?")
    return sessions


@pytest.mark.parametrize("name", ["markdown.md", "page.html", "openai.json"])
def test_formats_equal_the_golden_files(name):
    transcript = run_agent().transcript("research")
    text = {
        "markdown.md": transcript.to_markdown,
        "page.html": transcript.to_html,
        "openai.json": lambda: json.dumps(transcript.to_openai(), indent=2) + "\n",
    }[name]()
    assert text == (GOLDEN / name).read_text()


def test_transcript_resolves_payloads_and_reads_the_past():
    sessions = run_agent()
    now = sessions.transcript("research")
    assert now.header.activity == "idle"
    assert now.entries[-1].content == "A fold is a *pure* function. " * 30
    first = now.entries[0]
    assert (first.title, first.content) == ("user", "What is a <fold>?")
    for count, entry in enumerate(now.entries, 1):
        then = sessions.transcript("research", at=entry.event)
        assert (then.header.event_id, len(then.entries)) == (entry.event, count)
        assert then.entries[-1].content == entry.content
    head = sessions.current_view("research").current_head
    assert sessions.transcript("research", at=head).entries == now.entries
    assert sessions.transcript("research", at=NOON).entries == now.entries
    assert sessions.open("research").transcript(limit=2).entries == now.entries[-2:]


def test_limit_returns_the_newest_entries_and_states_that_others_exist():
    sessions = run_agent()
    everything = sessions.transcript("research")
    count = len(everything.entries)
    for limit in range(1, count + 2):
        some = sessions.transcript("research", limit=limit)
        assert some.entries == everything.entries[-limit:]
        assert some.complete == (limit >= count)
    assert "earlier entries are left out" in sessions.transcript("research", limit=1).to_markdown()
    with pytest.raises(InvalidInput, match="limit"):
        sessions.transcript("research", limit=0)
    with pytest.raises(NotFound):
        sessions.transcript("research", at=99)
    with pytest.raises(NotFound):
        sessions.transcript("unknown")


def test_transcript_starts_at_the_compaction_unless_the_whole_is_requested():
    sessions = Sessions()
    session = sessions.create({"id": "s"})
    session.append({"type": "message/appended", "message": {"role": "user", "content": "early"}})
    session.append(
        {"type": "session/compacted", "vars_ref": {}, "message": {"content": "all of it"}}
    )
    session.append({"type": "message/appended", "message": {"role": "user", "content": "late"}})
    contents = [entry.content for entry in session.transcript().entries]
    assert contents == ["all of it", "late"]
    whole = [entry.content for entry in session.transcript(whole=True).entries]
    assert whole == ["early", "all of it", "late"]
    assert session.transcript().to_openai()["messages"][0] == {
        "role": "system",
        "content": "all of it",
    }


def test_large_payload_stays_a_reference_unless_all_are_requested():
    sessions = Sessions()
    session = sessions.create({"id": "s"})
    text = "x" * 1_100_000
    session.append(
        {"type": "message/appended", "message": {"role": "user", "content": Payload(text)}}
    )
    [entry] = session.transcript().entries
    assert entry.content["ref"] == "payload"
    assert f"payload {entry.content['payload_id']}" in session.transcript().to_html()
    [entry] = session.transcript(full=True).entries
    assert entry.content == text


def test_changing_a_transcript_changes_no_session():
    sessions = run_agent()
    before = sessions.transcript("research").to_markdown()
    for entry in sessions.transcript("research").entries:
        if isinstance(entry.content, dict | list):
            entry.content.clear()
    assert sessions.transcript("research").to_markdown() == before
    assert sessions.verify() == []


def conversation(contents, role="user", name="search"):
    sessions = Sessions(clock=lambda: NOON)
    session = sessions.create({"id": "s"})
    session.append({"type": "turn/started", "turn": {"status": "running"}})
    for content in contents:
        session.append(
            {"type": "message/appended", "message": {"role": role or "user", "content": content}}
        )
    session.append({"type": "eval/added", "eval": {"name": name, "status": "ok"}})
    return session.transcript()


class Page(HTMLParser):
    """The tags of a page, and the texts of its elements."""

    def __init__(self, text):
        super().__init__()
        self.tags = Counter()
        self.attributes = Counter()
        self.contents = []
        self._inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes.update(name for name, _ in attrs)
        self._inside = tag
        if tag == "pre":
            self.contents.append("")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "pre":
            self.contents[-1] += data


def visible(text):
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        chr(0x2400 + ord(char))
        if char < " " and char not in "\n\t"
        else "\u2421"
        if char == "\x7f"
        else char
        for char in plain
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(hostile.filter(bool), min_size=1, max_size=4), hostile, hostile)
@example(list(HOSTILE), HOSTILE[0], HOSTILE[1])
def test_page_keeps_every_content_inside_its_entry(contents, role, name):
    page = Page(conversation(contents, role, name).to_html())
    plain = Page(conversation(["x"] * len(contents)).to_html())
    assert (page.tags, page.attributes) == (plain.tags, plain.attributes)
    assert page.contents == ["\n" + visible(content) for content in contents]


def outside_quotes(text):
    """Return the headings of a Markdown text, and the types of blocks that are in no quote."""
    headings, blocks, depth = [], [], 0
    tokens = MarkdownIt("commonmark").parse(text)
    for index, token in enumerate(tokens):
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if depth == 0:
            blocks.append(token.type)
            if token.type == "heading_open":
                inline = tokens[index + 1]
                headings.append((token.tag, [child.type for child in inline.children]))
    return headings, blocks


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(hostile.filter(bool), min_size=1, max_size=4), hostile, hostile)
@example(list(HOSTILE), HOSTILE[0], HOSTILE[1])
def test_markdown_keeps_every_content_inside_its_quote(contents, role, name):
    text = conversation(contents, role, name).to_markdown()
    headings, blocks = outside_quotes(text)
    plain = outside_quotes(conversation(["x"] * len(contents)).to_markdown())
    assert blocks == plain[1]
    assert [tag for tag, _ in headings] == [tag for tag, _ in plain[0]]
    # No markup: nothing but text, also in a role or the name of a call.
    assert {kind for _, children in headings for kind in children} <= {"text", "text_special"}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(hostile.filter(bool), min_size=1, max_size=4))
def test_chat_messages_have_the_contents_as_they_are(contents):
    messages = conversation(contents).to_openai()["messages"]
    assert [message["content"] for message in messages] == contents
    assert {message["role"] for message in messages} == {"user"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | hostile,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "tool_calls", "name", "function", "ref", "id"]
            )
            | texts,
            inner
            | st.sampled_from(["tool_use", "function_call", "tool_result", "text", "reasoning"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(JSON_VALUES, min_size=1, max_size=3))
def test_every_content_has_a_text_and_valid_chat_messages(contents):
    transcript = conversation(contents)
    assert transcript.to_markdown()
    Page(transcript.to_html())
    for message in json.loads(json.dumps(transcript.to_openai()))["messages"]:
        assert message["role"] in {"system", "developer", "user", "assistant", "tool"}
        for call in message.get("tool_calls", ()):
            assert set(call) == {"id", "type", "function"}
            assert isinstance(call["function"]["arguments"], str)
