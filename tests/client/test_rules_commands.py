"""`fourfold stream schema`, `profile` and `touch`, on a folder and on a server: both print the
same.
"""

from __future__ import annotations

import io
import json
import re
import threading
import uuid
from types import SimpleNamespace

import pytest

from fourfold.cli import main
from fourfold.client.requests import Address
from fourfold.client.responses import Response
from fourfold.client.threads.remote_touches import RemoteTouches
from fourfold.errors import FourfoldError, NotFound, ServerUnreachable
from fourfold.models.streams.touch import EntityKey

OFFSET = "0000000000000000_000000000000000"
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
    "additionalProperties": False,
}
RENAMED = {
    "type": "object",
    "properties": {"no": {"type": "integer", "title": "Stück\x9b"}},
    "required": ["no"],
    "additionalProperties": False,
}
RENAME = {"ops": [{"op": "rename", "from": "id", "to": "no"}]}
CURSOR = re.compile(r"[0-9A-Za-z_-]+(:[0-9]+)(?=[\"\n])")


@pytest.fixture
def name():
    return f"s-{uuid.uuid4().hex}"


@pytest.fixture
def run(places, monkeypatch, capfd):
    """Run a command on both places and return its output, which must be equal."""

    def call(command, *arguments, stdin=b"", code=0):
        printed = []
        for place in places:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
            assert main.run(["stream", *command.split(), place, *arguments]) == code
            out, err = capfd.readouterr()
            output = re.sub(r'_ms": \d+', '_ms": 0', out) or err
            # Only the client's messages name the operation.
            output = re.sub(r"(?<=\]: )[a-z ]+ (of|to) '[^']*': |(?m:^hint: .*\n)", "", output)
            # A stream of another store is another stream.
            printed.append(CURSOR.sub(r"CURSOR\1", output).replace(place, ""))
        assert printed[0] == printed[1]
        return printed[0]

    return call


@pytest.fixture
def file(tmp_path):
    def write(value):
        path = tmp_path / f"{uuid.uuid4().hex}.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    return write


def change(key, value, operation="insert"):
    headers = {"operation": operation}
    return json.dumps({"type": "todo", "key": key, "value": value, "headers": headers})


def test_schema_command_sets_version_by_version(run, name, file):
    run("create", name)
    assert run("schema show", name) == f"{name} has no schema\n"
    first = run("schema set", name, file(ORDER))
    assert first == f"version 1 of {name} applies from {OFFSET}0 on\n"
    assert run("schema set", name, file(ORDER)).startswith("nothing changed: version 1 ")
    assert not json.loads(run("schema set", name, file(ORDER), "--json"))["changed"]
    run("append", name, '{"id": 1}')
    assert "violates version 1" in run("append", name, '{"id": "x"}', code=2)
    lens, renamed = file(RENAME), json.dumps(RENAMED).encode()
    output = json.loads(run("schema set", name, "-", "--lens", lens, "--json", stdin=renamed))
    assert output["changed"]
    assert output["registry"]["boundaries"] == [
        {"offset": f"{OFFSET}0", "version": 1},
        {"offset": f"{OFFSET}1", "version": 2},
    ]
    assert json.loads(run("schema show", name, "--json"))["registry"] == output["registry"]
    assert run("read", name) == '{"no":1}\n'


def test_schema_command_shows_versions(run, name, file):
    run("create", name)
    run("schema set", name, file(ORDER))
    run("schema set", name, file(RENAMED), "--lens", file(RENAME))
    run("schema key", name, "/no", "--required")
    run("schema fields", name, "no", "by")
    table, displayed = run("schema show", name).split("{", 1)
    assert table.splitlines() == [
        "VERSION  APPLIES FROM",
        f"1        {OFFSET}0",
        f"2        {OFFSET}0",
        "the routing key of a message is the value at /no; every message must have one",
        "messages are found by no, by",
    ]
    # It can be read by people and by programs, and moves no cursor.
    assert json.loads("{" + displayed) == RENAMED
    assert "Stück\\u009b" in displayed
    assert json.loads(run("schema show", name, "--version", "1")) == ORDER
    output = json.loads(run("schema show", name, "--version", "2", "--json"))
    assert output == {
        "name": name,
        "version": 2,
        "offset": f"{OFFSET}0",
        "schema": RENAMED,
        "lens": RENAME,
    }
    assert "has no version 3" in run("schema show", name, "--version", "3", code=3)


def test_declarations_are_set_and_removed(run, name):
    run("create", name)
    run("schema key", name, "/by")
    run("append", name, '[{"by": "ann", "n": 1}, {"by": "bob", "n": 2}]')
    assert run("read", name, "--routing-key", "bob") == '{"by": "bob", "n": 2}\n'
    output = run("schema key", name, "--none")
    assert output == f"{name}: no routing key is read from the messages\n"
    output = json.loads(run("schema fields", name, "by", "--json"))
    assert (output["changed"], output["registry"]["search"]) == (True, {"fields": ["by"]})
    assert run("schema fields", name, "--none") == f"{name}: messages are found by no fields\n"
    output = json.loads(run("schema fields", name, "--none", "--json"))
    assert (output["changed"], output["registry"]["search"]) == (False, None)


def test_profile_is_set_and_shown(run, name):
    run("create", name)
    assert run("profile show", name) == f"{name} has the profile generic\n"
    output = run("profile set", name, "evlog", "--redact", "iban", "--redact", "bic")
    assert output.splitlines() == [
        f"{name} has the profile evlog",
        "redacted in addition to the defaults: iban, bic",
        "events are found by requestId, traceId",
    ]
    output = json.loads(run("profile set", name, "evlog", "--routing-key", "user", "--json"))
    assert output["profile"] == {"kind": "evlog", "redact": [], "routingKey": ["user"]}
    output = run("profile set", name, "state-protocol", "--touch")
    assert output == f"{name} has the profile state-protocol\nits changes can be waited for\n"
    assert run("profile show", name) == output
    output = json.loads(run("profile set", name, "state-protocol", "--no-touch", "--json"))
    assert output == {
        "name": name,
        "profile": {"kind": "state-protocol", "touch": {"enabled": False}},
    }
    assert "touch is not enabled" in run("touch show", name, code=3)


def test_wait_command_names_what_changed(run, name, places, capfd):
    run("create", name)
    run("profile set", name, "state-protocol", "--touch")
    template = run("touch template", name, "todo", "n:integer", "list").strip()
    assert run("touch show", name).splitlines() == [
        "cursor: CURSOR:0",
        f"processed up to {OFFSET}0",
        "TEMPLATE                          ENTITY  FIELDS                  STATE   FROM",
        f"{template}  todo    list:string, n:integer  active  {OFFSET}0",
    ]
    sent = (
        *("--row", "todo", "7", "--row", "todo", "8", "--entity", "other", "--entity", "todo"),
        *("--rows", template, '{"list": "a", "n": 1}', "--rows", template, '{"list": "é", "n": 2}'),
    )
    for seconds in ("0", "0.1"):
        over = run("touch wait", name, *sent, "--timeout", seconds)
        assert over == "nothing changed\ncursor: CURSOR:0\n"
    for place in places:
        main.run(["stream", "touch", "show", place, name, "--json"])
        cursor = json.loads(capfd.readouterr().out)["cursor"]
        main.run(["stream", "append", place, name, change("7", {"list": "é", "n": 2})])
        capfd.readouterr()
        waiting = ["stream", "touch", "wait", place, name, *sent, "--cursor", cursor]
        assert main.run(waiting) == 0
        assert capfd.readouterr().out.splitlines() == [
            "changed: todo",
            "changed: todo 7",
            f'changed: {template} {{"list":"é","n":2}}',
            f"cursor: {cursor.replace(':0', ':1')}",
        ]
        assert main.run([*waiting, "--json"]) == 0
        assert json.loads(capfd.readouterr().out) == {
            "name": name,
            "touched": True,
            "stale": False,
            "cursor": cursor.replace(":0", ":1"),
            "keys": [
                {"entity": "todo"},
                {"entity": "todo", "key": "7"},
                {"template": template, "values": {"list": "é", "n": 2}},
            ],
        }
    stale = run("touch wait", name, "--entity", "todo", "--cursor", "another:0")
    assert stale.startswith("everything may have changed")


def test_wait_without_a_timeout_lasts_until_a_change(name, places, capfd):
    for place in places:
        main.run(["stream", "create", place, name])
        main.run(["stream", "profile", "set", place, name, "state-protocol", "--touch"])
        capfd.readouterr()
        main.run(["stream", "touch", "show", place, name, "--json"])
        cursor = json.loads(capfd.readouterr().out)["cursor"]
        later = threading.Timer(0.2, main.run, [["stream", "append", place, name, change("7", 1)]])
        later.start()
        waiting = ["stream", "touch", "wait", place, name, "--entity", "todo", "--cursor", cursor]
        assert main.run(waiting) == 0
        later.join()
        assert "changed: todo\n" in capfd.readouterr().out


class Scripted:
    """A client that sends nothing and has prepared responses and errors."""

    def __init__(self, *outcomes):
        self.settings = SimpleNamespace(address=Address("http://127.0.0.1:1"))
        self._outcomes = list(outcomes)

    def send(self, _call):
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, FourfoldError):
            raise outcome
        output = {"touched": outcome, "stale": False, "cursor": "i:1", "keys": [0] * outcome}
        return Response(200, {}, json.dumps(output).encode())


def test_wait_retries_only_a_server_that_has_responded():
    away = ServerUnreachable("no answer")
    waiting = RemoteTouches(Scripted(False, away, False, away, True))
    assert waiting.wait("s", None, [EntityKey("e")], float("inf")).keys == (0,)
    with pytest.raises(ServerUnreachable):
        RemoteTouches(Scripted(away, True)).wait("s", None, [EntityKey("e")], float("inf"))
    waiting = RemoteTouches(Scripted(False, NotFound("it is gone"), True))
    with pytest.raises(NotFound):
        waiting.wait("s", None, [EntityKey("e")], float("inf"))


@pytest.mark.parametrize(
    ("command", "arguments", "code", "message"),
    [
        ("schema show", ["missing"], 3, "missing"),
        ("schema set", ["here", "no-such-file"], 3, "no-such-file"),
        ("schema set", ["here", "/"], 2, "is a folder"),
        ("schema set", ["here", "-"], 2, "stdin is not JSON"),
        ("schema set", ["here", "-", "--lens", "-"], 2, "both come from stdin"),
        ("schema key", ["here"], 2, "POINTER or --none"),
        ("schema key", ["here", "/a", "--none"], 2, "POINTER or --none"),
        ("schema key", ["here", "--none", "--required"], 2, "--required"),
        ("schema key", ["here", "a"], 2, "invalid JSON pointer"),
        ("schema fields", ["here"], 2, "FIELDs or --none"),
        ("schema fields", ["here", "a", "--none"], 2, "FIELDs or --none"),
        ("profile set", ["here", "odd"], 2, "unknown kind of profile"),
        ("profile set", ["here", "generic", "--touch"], 2, "unknown field 'touch'"),
        ("touch wait", ["here", "--timeout", "0"], 2, "--entity, --row or --rows"),
        ("touch wait", ["here", "--entity", "e", "--timeout", "0"], 3, "touch is not enabled"),
        ("touch wait", ["here", "--rows", "t", "{"], 2, "not JSON"),
        ("touch wait", ["here", "--rows", "t", "[]"], 2, "JSON object"),
        ("touch template", ["here", "e", "a:strng"], 2, "not one of string"),
        ("touch template", ["here", "e", "a", "a:number"], 2, "Duplicate field"),
        ("touch template", ["here", "e", "a"], 3, "touch is not enabled"),
    ],
)
def test_errors_are_equal_and_name_the_problem(run, command, arguments, code, message):
    run("create", "here")
    output = run(command, *arguments, code=code)
    assert output.startswith("error[")
    assert message in output
    assert run("schema show", "here") == "here has no schema\n"


def test_field_may_contain_a_colon_when_its_encoding_is_given(run, name):
    run("create", name)
    run("profile set", name, "state-protocol", "--touch")
    output = json.loads(run("touch template", name, "e", "a:b:boolean", "--ttl", "90", "--json"))
    template = output["template"]
    assert template["fields"] == {"a:b": "boolean"}
    assert template["active_from_offset"] == f"{OFFSET}0"
    displayed = json.loads(run("touch show", name, "--json"))["templates"]
    assert displayed == [template]
