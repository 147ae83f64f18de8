"""What each operation does and refuses, one line each: document | patch | result or reason.

A patch is written as its operation, its paths and its arguments in JSON; the root is a dot. The
fields stand in this order: `move FROM PATH`, `splice PATH INDEX REMOVE ADD`, else `OP PATH VALUE`.
"""

from __future__ import annotations

import json

APPLIED = """
{} | add /value/list/0 1 | {"value": {"list": [1]}}
{} | add /value/list/- 1 | {"value": {"list": [1]}}
{} | add /a/b/c 1 | {"a": {"b": {"c": 1}}}
{"value": {}} | add /value/a 1 | {"value": {"a": 1}}
{"value": {"a": 1}} | add /value/a null | {"value": {"a": null}}
{"value": [1]} | add /value 2 | {"value": 2}
{"value": [1, 3]} | add /value/1 2 | {"value": [1, 2, 3]}
{"value": [1]} | add /value/0 0 | {"value": [0, 1]}
{"value": [1]} | add /value/1 2 | {"value": [1, 2]}
{"value": [1]} | add /value/- 2 | {"value": [1, 2]}
{"value": 1} | add . {"a": 1} | {"a": 1}
{"value": {}} | add /value/0 1 | {"value": {"0": 1}}
{"value": {}} | add /value/- 1 | {"value": {"-": 1}}
{"value": {}} | add /value/ 1 | {"value": {"": 1}}
{"value": [{}]} | add /value/0/a/b 1 | {"value": [{"a": {"b": 1}}]}
{} | add /__proto__/constructor 1 | {"__proto__": {"constructor": 1}}

{"value": {"a": 1}} | replace /value/a [2] | {"value": {"a": [2]}}
{"value": {}} | replace /value/new 1 | {"value": {"new": 1}}
{} | replace /value 1 | {"value": 1}
{"value": [1, 2]} | replace /value/1 9 | {"value": [1, 9]}
{"value": 1} | replace . {} | {}
{"value": 1} | replace /value null | {"value": null}

{"value": {"a": 1, "b": 2}} | remove /value/a | {"value": {"b": 2}}
{"value": {"a": null}} | remove /value/a | {"value": {}}
{"value": 1} | remove /value | {}
{"value": [1, 2, 3]} | remove /value/0 | {"value": [2, 3]}
{"value": {"~1": 1}} | remove /value/~01 | {"value": {}}

{"value": {"a": 1}} | move /value/a /value/a | {"value": {"a": 1}}
{"value": [1, 2, 3]} | move /value/1 /value/1 | {"value": [1, 2, 3]}
{"value": [1, 2, 3]} | move /value/0 /value/2 | {"value": [2, 3, 1]}
{"value": [1, 2, 3]} | move /value/2 /value/0 | {"value": [3, 1, 2]}
{"value": [1, 2]} | move /value/0 /value/- | {"value": [2, 1]}
{"value": {"a": 1}} | move /value/a /x/y/z | {"value": {}, "x": {"y": {"z": 1}}}
{"value": {"a": 1, "b": [2]}} | move /value/a /value/b | {"value": {"b": 1}}
{"value": {"a": {"b": 1}}} | move /value/a/b /value/a | {"value": {"a": 1}}
{"value": {"a": {"b": 1}}} | move /value/a . | {"b": 1}
{"value": {"a": 1}} | move /value/a /value/ab | {"value": {"ab": 1}}
{"a": {"b": 1}} | move /a/b /a | {"a": 1}

{"value": [1, 2]} | splice /value 1 9 [7] | {"value": [1, 7]}
{"value": [1, 2]} | splice /value 1 0 [8, 9] | {"value": [1, 8, 9, 2]}
{"value": [1, 2, 3]} | splice /value 0 2 [] | {"value": [3]}
{"value": [1]} | splice /value 1 0 [2] | {"value": [1, 2]}
{"value": [1]} | splice /value 0 1000000000000000000000000000000 [] | {"value": []}

{} | append /value/q [1] | {"value": {"q": [1]}}
{"value": [1]} | append /value [1, [2]] | {"value": [1, 1, [2]]}
{"value": {}} | append /value/q [] | {"value": {"q": []}}
{"value": [[1]]} | append /value/0 [2] | {"value": [[1, 2]]}
{"value": []} | append /value/0 [2] | {"value": [[2]]}
{} | append /value/q/0 [2] | {"value": {"q": [[2]]}}

{} | add-unique /value/q [1, 1] | {"value": {"q": [1]}}
{"value": ["a"]} | add-unique /value ["b", "a"] | {"value": ["a", "b"]}
{"v": [{"a": [1], "b": 2}]} | add-unique /v [{"b": 2, "a": [1]}] | {"v": [{"a": [1], "b": 2}]}

{"value": [1, 2, 1, [1]]} | remove-by-value /value 1 | {"value": [2, [1]]}
{"value": [{"a": [1]}, {"a": [2]}]} | remove-by-value /value {"a": [1]} | {"value": [{"a": [2]}]}
{"value": [1]} | remove-by-value /value 2 | {"value": [1]}
{} | remove-by-value /value/q 1 | {}
{"value": {"a": 1}} | remove-by-value /value 1 | {"value": {"a": 1}}
{"value": 1} | remove-by-value /value/a/b 1 | {"value": 1}
{"value": [[1]]} | remove-by-value /value/00 1 | {"value": [[1]]}
{"value": 1} | remove-by-value . 1 | {"value": 1}

{} | increment /value/n 2 | {"value": {"n": 2}}
{"value": {"n": 1}} | increment /value/n -3 | {"value": {"n": -2}}
{"value": [1, 2]} | increment /value/1 5 | {"value": [1, 7]}
{"value": [1]} | increment /value/1 5 | {"value": [1, 5]}
{} | increment /value/list/0 5 | {"value": {"list": [5]}}
{"value": 18446744073709551616} | increment /value 1 | {"value": 18446744073709551617}
{"value": 1} | increment /value 1.0 | {"value": 2.0}
{"value": 0.5} | increment /value 1 | {"value": 1.5}
{"value": 1} | increment /value -1 | {"value": 0}
"""

UNFIT = """
{} | add /value/list/1 1 | index 1 is out of bounds
{"value": []} | add /value/4294967295 1 | out of bounds
{} | add /value/list/0/x 1 | nothing is at /value/list/0
{} | add /value/list/-/x 1 | nothing is at /value/list/-
{"value": []} | add /value/0/x 1 | nothing is at /value/0
{"value": [1]} | add /value/-/x 1 | '-' is not an index
{"value": [1]} | add /value/01 1 | '01' is not an index of the array at /value
{"value": [1]} | add /value/+0 1 | not an index
{"value": [1]} | add /value/x 1 | 'x' is not an index
{"value": "text"} | add /value/x 1 | /value is a string
{"value": null} | add /value/x/y 1 | /value is null
{"value": {"a": 1}} | add . 5 | leave a number, and a document is an object

{} | replace . [] | leave an array
{} | replace /value/x 1 | nothing is at /value
{"value": [1]} | replace /value/1 1 | nothing is at /value/1
{"value": [1]} | replace /value/- 1 | '-' is not an index
{"value": 1} | replace /value/x 1 | /value is a number

{"value": {}} | remove /value/a | nothing is at /value/a
{"value": [1]} | remove /value/1 | nothing is at /value/1
{"value": [1]} | remove /value/- | '-' is not an index
{"value": true} | remove /value/a | /value is a boolean

{} | move /a /b | nothing is at /a
{} | move /a /a | nothing is at /a
{"value": [1, 2]} | move /value/0 /value/2 | out of bounds
{"a": 1, "b": 2} | move /a /b/c | /b is a number
{"a": 1} | move /a . | leave a number

{"value": [1]} | splice /value 2 0 [] | index 2 is past the end
{"value": {}} | splice /value 0 0 [] | /value is an object and not an array
{"value": 1} | splice /value 0 0 [] | /value is a number
{} | splice /value 0 0 [] | nothing is at /value
{} | splice . 0 0 [] | is an object and not an array

{"value": {}} | append /value [1] | /value is an object and not an array
{"value": null} | append /value [1] | /value is null
{} | append . [1] | is an object and not an array
{"value": []} | append /value/- [1] | '-' is not an index
{"value": []} | append /value/1 [1] | out of bounds
{} | append /a/0/b [1] | nothing is at /a/0

{"value": "a"} | add-unique /value ["a"] | /value is a string

{"value": "1"} | increment /value 1 | a string and not a number
{"value": true} | increment /value 1 | a boolean and not a number
{"value": null} | increment /value 1 | null and not a number
{"value": 1} | increment /value/a 1 | /value is a number
{"value": []} | increment /value/1 1 | out of bounds
{"value": [1]} | increment /value/- 1 | '-' is not an index
{"value": 1e+308} | increment /value 1e+308 | too large
"""

FIELDS = {
    "replace": ["value"],
    "add": ["value"],
    "remove": [],
    "splice": ["index", "remove", "add"],
    "append": ["values"],
    "add-unique": ["values"],
    "remove-by-value": ["value"],
    "increment": ["by"],
}


def lines(table):
    return [line for line in table.splitlines() if line]


def read(line):
    """The document, the patch, and what is expected, as text."""
    document, short, expected = line.split(" | ")
    op, *words = short.split(" ", 2)
    words = ["" if word == "." else word for word in words]
    if op == "move":
        made = {"op": op, "from": words[0], "path": words[1]}
    else:
        made = {"op": op, "path": words[0]}
        arguments = words[1].split(" ", len(FIELDS[op]) - 1) if words[1:] else []
        made |= zip(FIELDS[op], map(json.loads, arguments), strict=True)
    return json.loads(document), made, expected
