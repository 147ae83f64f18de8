"""The rules of a random life about declared indexes: what they find is what a scan of the model
finds, at every point and on every branch.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from space_operations import LEAVES, PICK

from fourfold.content.filters import parse_filter
from fourfold.content.text import parse_text_query
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.indexes.declaration import parts
from fourfold.models.documents.indexes.keys import decode_key, encode_part
from fourfold.models.documents.indexes.planner import parse_facet
from support.document_model import text

INDEXES = {
    "n": ("/n", "all"),
    "value": ("/value", "all"),
    "items": ("/l/*", "all"),
    "both": (["/n", "/o/n"], "all"),
    "now": ("/n", "now"),
    "words": (["/value", "/l/*", "/o/n"], "all"),
    "words_now": ("/value", "now"),
    "vectors": ("/l", "all"),
    "vectors_now": ("/l", "now"),
}
KINDS = {"words": "text", "vectors": "vector"}
QUERIES = ("x", "e", "x y", '"x y"', '"y x"', "x -e", "y* e", "-y x*")
SIMPLE = LEAVES.filter(lambda leaf: leaf is not None)
CONDITION = st.one_of(
    st.builds(lambda value: {"n": value}, st.integers(0, 3)),
    st.builds(lambda value: {"/value": value}, LEAVES),
    st.builds(
        lambda name, value: {"value": {name: value}},
        st.sampled_from(["$gt", "$gte", "$lt", "$lte"]),
        SIMPLE,
    ),
    st.builds(lambda values: {"n": {"$in": values}}, st.lists(LEAVES, max_size=3)),
    st.builds(lambda value: {"l": {"$any": value}}, SIMPLE),
    st.builds(lambda value: {"l": {"$any": {"$gte": value}}}, SIMPLE),
    st.builds(lambda value: {"/o/n": value}, LEAVES),
    st.just({"value": {"$prefix": "x"}}),
    st.just({"n": {"$exists": False}}),
    st.builds(lambda words: {"value": {"$text": words}}, st.sampled_from(QUERIES)),
    st.builds(lambda words: {"l": {"$any": {"$text": words}}}, st.sampled_from(QUERIES)),
)
FILTERS = st.lists(CONDITION, max_size=2).map(lambda conditions: {"$and": conditions})


class IndexRules(RuleBasedStateMachine):
    """Part of `SpaceMachine`, which has the space, the model, and what compares them."""

    @rule(name=st.sampled_from(sorted(INDEXES)))
    def create_index(self, name):
        if name not in self.space.indexes:
            path, history = INDEXES[name]
            kind = KINDS.get(name.split("_")[0], "value")
            info = self.space.indexes.create(name, path, history=history, kind=kind)
            assert self.space.indexes.wait(name).state == "ready", info

    @precondition(lambda self: len(self.space.indexes) > 1)
    @rule(pick=PICK, rebuild=st.booleans())
    def renew_index(self, pick, rebuild):
        names = [info.name for info in self.space.indexes]
        name = names[pick % len(names)]
        if rebuild:
            self.space.indexes.rebuild(name)
            assert self.space.indexes.wait(name).state == "ready"
        else:
            self.space.indexes.drop(name)

    @precondition(lambda self: len(self.space.indexes) > 0)
    @rule(
        pick=PICK,
        age=st.integers(0, 20) | st.none(),
        where=FILTERS,
        order_by=st.sampled_from([None, "n", "-n", "/value", "-/value"]),
        limit=st.integers(1, 4),
    )
    def find(self, pick, age, where, order_by, limit):
        model, space, branch = self.model, self.space, self.branch(pick)
        at = None if age is None else max(model.lines[branch].created_seq, model.seq - age)
        try:
            matches, after = [], None
            while not matches or after is not None:
                page = space.find(
                    where, order_by=order_by, limit=limit, after=after, at=at, branch=branch
                )
                matches += page.items
                after = page.next
                if after is None:
                    break
        except HistoryTruncated:
            assert self.readable(branch, at) is not True
            return
        documents = self.matching(branch, at, where)
        assert {each.id: text(each.document) for each in matches} == {
            each: text(document) for each, document in documents.items()
        } or order_by
        assert space.count(where, at=at, branch=branch) == len(documents)
        if order_by:
            assert [each.id for each in matches] == in_order(documents, order_by)
        assert len({each.id for each in matches}) == len(matches)
        for path in ("n", "/l/*"):
            self.compare_facets(branch, at, where, path, documents)

    @precondition(lambda self: "words" in self.space.indexes)
    @rule(
        pick=PICK,
        age=st.integers(0, 20) | st.none(),
        query=st.sampled_from(QUERIES),
        order=st.sampled_from(["score", "newest"]),
        paths=st.sampled_from([None, ["/value"], ["/l/*", "/o/n"]]),
        limit=st.integers(1, 4),
    )
    def search(self, pick, age, query, order, paths, limit):
        """What an index of words finds is what a reader of every text finds."""
        model, space, branch = self.model, self.space, self.branch(pick)
        at = None if age is None else max(model.lines[branch].created_seq, model.seq - age)
        options = {"index": "words", "paths": paths, "order": order, "limit": limit}
        hits, after = [], None
        try:
            while not hits or after is not None:
                page = space.search(query, after=after, at=at, branch=branch, **options)
                hits += page.items
                after = page.next
                if after is None:
                    break
        except HistoryTruncated:
            assert self.readable(branch, at) is not True
            return
        expected = {
            entity: text(document)
            for entity, document in self.matching(branch, at, {}).items()
            if parse_text_query(query).matches(words_of(document, paths))
        }
        assert {hit.id: text(hit.document) for hit in hits} == expected
        assert len(hits) == page.total == len(expected)
        if order == "score":
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            assert hit.snippets

    @precondition(lambda self: "vectors" in self.space.indexes)
    @rule(
        pick=PICK,
        age=st.integers(0, 20) | st.none(),
        vector=st.lists(st.sampled_from([1, 1.0, -2, 0.1, 0]), min_size=1, max_size=3).filter(any),
        limit=st.integers(1, 4),
    )
    def search_vectors(self, pick, age, vector, limit):
        """What an index of vectors finds is what a reader of every vector finds."""
        model, space, branch = self.model, self.space, self.branch(pick)
        at = None if age is None else max(model.lines[branch].created_seq, model.seq - age)
        hits, after = [], None
        try:
            while not hits or after is not None:
                page = space.search(
                    vector=vector, index="vectors", limit=limit, after=after, at=at, branch=branch
                )
                hits += page.items
                after = page.next
                if after is None:
                    break
        except HistoryTruncated:
            assert self.readable(branch, at) is not True
            return
        documents = self.matching(branch, at, {})
        cosines = {
            entity: cosine(document.get("l"), vector) for entity, document in documents.items()
        }
        expected = {entity: value for entity, value in cosines.items() if value is not None}
        assert {hit.id: text(hit.document) for hit in hits} == {
            entity: text(documents[entity]) for entity in expected
        }
        assert len(hits) == page.total
        for hit in hits:
            assert math.isclose(hit.score, expected[hit.id], abs_tol=1e-5)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def matching(self, branch, at, where):
        at = self.model.seq if at is None else at
        matches = parse_filter(where).matches
        states = {each: self.model.state(branch, each, at) for each in self.model.ids(branch, at)}
        return {each: state.document for each, state in states.items() if matches(state.document)}

    def compare_facets(self, branch, at, where, path, documents):
        expected = {}
        for document in documents.values():
            for key in parts(document, parse_facet(path)):
                expected[key] = expected.get(key, 0) + 1
        found = self.space.facets(path, where=where, at=at, branch=branch)
        assert {encode_part(each.value): each.count for each in found} == expected
        assert [each.value for each in found] == [
            decode_key(key)[0] for key in sorted(expected, key=lambda key: (-expected[key], key))
        ]


def words_of(document, paths):
    """Return the texts of a document that the index of words has."""
    other = document.get("o")
    texts = {
        "/value": [document.get("value")],
        "/l/*": document["l"] if isinstance(document.get("l"), list) else [],
        "/o/n": [other.get("n")] if isinstance(other, dict) else [],
    }
    listed = (item for path in paths or texts for item in texts[path])
    return [item for item in listed if isinstance(item, str)]


def cosine(value, vector):
    """Return the cosine of two vectors; None if the value is not a vector of the same length."""
    if not isinstance(value, list) or len(value) != len(vector):
        return None
    if any(type(number) not in (int, float) for number in value) or not any(value):
        return None
    product = sum(a * b for a, b in zip(value, vector, strict=True))
    return product / math.hypot(*value) / math.hypot(*vector)


def in_order(documents, order_by):
    """Return the ids of documents by the value of a field, without those that have none."""
    field = order_by.lstrip("-/")
    placed = [
        (encode_part(document[field]), each)
        for each, document in documents.items()
        if field in document and encode_part(document[field]) is not None
    ]
    return [each for _, each in sorted(placed, reverse=order_by.startswith("-"))]
