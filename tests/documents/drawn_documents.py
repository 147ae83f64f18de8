"""Hypothesis strategies for documents and patches, and a naive way to apply a patch.

The values are few and easily confused (1, 1.0 and True; "0" as a key and as an index; null and
nothing), so that drawn documents and paths meet each other often.
"""

from __future__ import annotations

import copy

from hypothesis import strategies as st

from fourfold.errors import InvalidInput
from fourfold.models.documents import patch
from fourfold.testing.strategies import typed_form

KEYS = st.sampled_from(["a", "b", "c", "0", "1", "-", "", "a/b", "~", "é", "01"])
LEAVES = st.sampled_from([None, False, True, 0, 1, 2, -1, 0.0, -0.0, 1.0, 2.5, "", "0", "a", "é"])
VALUES = st.recursive(
    LEAVES,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(KEYS, parts, max_size=4),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)
NUMBERS = st.sampled_from([1, -1, 2, 1.0, -2.5, 10**20])


def places(value, above=()):
    """Every path in a value, the root first."""
    yield above
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = ((str(index), item) for index, item in enumerate(value))
    for key, part in parts:
        yield from places(part, (*above, key))


@st.composite
def paths(draw, document, *, kind=None):
    """A path that is in the document, or nearly."""
    known = list(places(document))
    if kind is not None:
        known = [path for path in known if type(find(document, path)) is kind] or known
    path = draw(st.sampled_from(known))
    if kind is None and draw(st.booleans()):
        path = (*path, *draw(st.lists(KEYS, min_size=1, max_size=2)))
    return path


def find(value, path):
    for segment in path:
        value = value[int(segment)] if isinstance(value, list) else value[segment]
    return value


def pointer(path):
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


@st.composite
def patches(draw, document):
    """One operation with the right shape, which may or may not fit the document."""
    op = draw(st.sampled_from(patch.OPS))
    arrays = op in {"splice", "append", "add-unique", "remove-by-value"} and draw(st.booleans())
    made = {"op": op, "path": pointer(draw(paths(document, kind=list if arrays else None)))}
    if op in {"replace", "add", "remove-by-value"}:
        made["value"] = draw(VALUES)
    elif op in {"append", "add-unique"}:
        made["values"] = draw(st.lists(VALUES, max_size=3))
    elif op == "move":
        made["from"] = pointer(draw(paths(document)))
    elif op == "splice":
        made |= {
            "index": draw(st.integers(0, 3)),
            "remove": draw(st.integers(0, 3)),
            "add": draw(st.lists(VALUES, max_size=2)),
        }
    elif op == "increment":
        numbers = [path for path in places(document) if type(find(document, path)) in (int, float)]
        if numbers and draw(st.booleans()):
            made["path"] = pointer(draw(st.sampled_from(numbers)))
        made["by"] = draw(NUMBERS)
    return made


@st.composite
def fitting_patches(draw, document, *, max_size=4):
    """A list of operations that can be applied to the document."""
    made = []
    for _ in range(draw(st.integers(0, max_size))):
        candidate = draw(patches(document))
        try:
            document = patch.apply(document, [candidate])
        except InvalidInput:
            continue
        made.append(candidate)
    return made


class Unapplied(Exception):
    """The naive way cannot apply a patch."""


def apply_naively(document, listed):
    """What `patch.apply` must give, with copies of everything and without a thought for speed."""
    document = copy.deepcopy(document)
    for each in listed:
        document = _apply_one(document, copy.deepcopy(each))
    if not isinstance(document, dict):
        raise Unapplied
    return document


def _apply_one(document, made):
    box = {"root": document}
    path = ["root", *split(made["path"])]
    op = made["op"]
    if op == "replace":
        holder = walk(box, path[:-1])
        if isinstance(holder, list):
            holder[index(path[-1], len(holder))] = made["value"]
        elif isinstance(holder, dict):
            holder[path[-1]] = made["value"]
        else:
            raise Unapplied
    elif op == "add":
        put(box, path, made["value"])
    elif op == "remove":
        cut(box, path)
    elif op == "move":
        origin = ["root", *split(made["from"])]
        if len(origin) == 1 or (len(origin) < len(path) and path[: len(origin)] == origin):
            raise Unapplied
        put(box, path, cut(box, origin))
    elif op == "increment":
        _increment(box, path, made["by"])
    else:
        _change_array(box, path, made)
    return box["root"]


def _increment(box, path, by):
    holder = walk(box, path[:-1], create_for=path[-1])
    if len(path) == 1:
        raise Unapplied
    if isinstance(holder, list):
        at = index(path[-1], len(holder) + 1)
        old = holder[at] if at < len(holder) else 0
        place = slice(at, at + 1)
    else:
        old, place = holder.get(path[-1], 0), path[-1]
    if isinstance(old, bool) or not isinstance(old, int | float):
        raise Unapplied
    holder[place] = [old + by] if isinstance(place, slice) else old + by


def _change_array(box, path, made):
    if made["op"] == "remove-by-value":
        try:
            array = walk(box, path)
        except Unapplied:
            return
        if isinstance(array, list):
            array[:] = [item for item in array if json_form(item) != json_form(made["value"])]
        return
    if made["op"] != "splice":
        holder = walk(box, path[:-1], create_for=path[-1])
        if isinstance(holder, dict):
            holder.setdefault(path[-1], [])
        elif index(path[-1], len(holder) + 1) == len(holder):
            holder.append([])
    array = walk(box, path)
    if not isinstance(array, list):
        raise Unapplied
    if made["op"] == "splice":
        if made["index"] > len(array):
            raise Unapplied
        array[made["index"] : made["index"] + made["remove"]] = made["add"]
    for value in made.get("values", ()):
        if made["op"] == "append" or json_form(value) not in map(json_form, array):
            array.append(value)


def json_form(value):
    """A form in which two values are equal when JSON calls them equal."""
    if isinstance(value, dict):
        return ("object", frozenset((key, json_form(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", *map(json_form, value))
    return ("boolean" if isinstance(value, bool) else "leaf", value)


def split(text):
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def walk(value, path, create_for=None):
    """The value at a path; with `create_for`, the segment after it, missing objects are made."""
    for at, segment in enumerate(path):
        if isinstance(value, list):
            value = value[index(segment, len(value))]
        elif isinstance(value, dict):
            if segment not in value:
                ahead = path[at + 1 :]
                if create_for is None or any(looks_like_index(each) for each in ahead):
                    raise Unapplied
                following = ahead[0] if ahead else create_for
                value[segment] = [] if looks_like_index(following) else {}
            value = value[segment]
        else:
            raise Unapplied
    if create_for is not None and not isinstance(value, dict | list):
        raise Unapplied
    return value


def put(box, path, value):
    holder = walk(box, path[:-1], create_for=path[-1])
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif path[-1] == "-":
        holder.append(value)
    else:
        holder.insert(index(path[-1], len(holder) + 1), value)


def cut(box, path):
    if len(path) == 1:
        raise Unapplied
    holder = walk(box, path[:-1])
    if isinstance(holder, list):
        return holder.pop(index(path[-1], len(holder)))
    if not isinstance(holder, dict) or path[-1] not in holder:
        raise Unapplied
    return holder.pop(path[-1])


def looks_like_index(segment):
    return segment == "-" or segment in map(str, range(100))


def index(segment, below):
    if segment not in map(str, range(below)):
        raise Unapplied
    return int(segment)


def same(one, other):
    """Equal with all types, by a comparison that shares no code with what is tested."""
    return typed_form(one) == typed_form(other)
