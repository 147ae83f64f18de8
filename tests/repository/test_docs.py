"""The documentation cannot drift: references are complete, links resolve, examples run."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import click
import markdown_pages as markdown
import pytest
import repository_files as tree
from test_error_tree import CLASSES, generate

import fourfold
from fourfold import settings
from fourfold.cli import doctor
from fourfold.content import content_id, encode
from fourfold.models.graphs.sync.package import Ed25519Signer

REFERENCE = tree.ROOT / "docs" / "reference"
PAGES = tree.pages()


def page(name):
    return (REFERENCE / name).read_text(encoding="utf-8")


SHARED = generate.SHARED_OPTIONS


@pytest.mark.parametrize(("path", "command"), list(generate.iter_commands()), ids=str)
def test_every_command_argument_and_option_is_documented(path, command):
    section = markdown.section(page("cli.md"), f"## `{path}`")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in parameter.opts + parameter.secondary_opts:
                assert f"`{name}" in section or name in SHARED, name
        else:
            assert parameter.human_readable_name in section


def test_reference_of_the_command_line_is_generated_from_the_commands():
    text = page("cli.md")
    assert generate.with_commands(text) == text, "run: python docs/generate.py"


def test_routes_of_the_http_reference_are_those_of_the_table():
    text = page("http.md")
    assert generate.with_routes(text) == text, "run: python docs/generate.py"


@pytest.mark.parametrize("name", [*SHARED, "--help", "--version"])
def test_options_that_every_command_has_are_documented_once(name):
    assert f"`{name}`" in markdown.section(page("cli.md"), "## Every command")


def test_every_check_of_the_doctor_is_documented():
    section = markdown.section(page("cli.md"), "## `fourfold doctor`")
    for name in doctor.CHECKS:
        assert f"| `{name}` |" in section, name


ENDLESS = None
"""A command that goes on until it is interrupted; its document is looked at elsewhere."""
KEY = Ed25519Signer(bytes(range(32)))
SPACE = ["my-store", "did:web:shop.example"]
CALLS = {
    "demo": ["my-demo", "--no-spark"],
    "show": ["my-demo"],
    "open": ENDLESS,
    "space create": SPACE,
    "space list": ["my-store"],
    "space verify": SPACE,
    "space maintain": SPACE,
    "space gc": [*SPACE, "--keep", "1000"],
    "space set": [*SPACE, "note", '{"title": "Hello"}'],
    "space patch": [*SPACE, "note", '{"op": "add", "path": "/n", "value": 1}'],
    "space delete": [*SPACE, "note"],
    "space revert": [*SPACE, "--at", "1"],
    "space get": [*SPACE, "note"],
    "space ids": SPACE,
    "space log": SPACE,
    "space history": [*SPACE, "note"],
    "space diff": [*SPACE, "--at", "1"],
    "space branch create": [*SPACE, "draft"],
    "space branch list": SPACE,
    "space branch delete": [*SPACE, "draft"],
    "space merge": [*SPACE, "draft"],
    "space blob put": [*SPACE, "some-bytes"],
    "space blob get": [*SPACE, content_id(b"bytes"), "--output", "same-bytes"],
    "space blob list": SPACE,
    "space export": [*SPACE, "--output", "shop.ndjson"],
    "space import": ["elsewhere", SPACE[1], "shop.ndjson"],
    "space carry": [*SPACE, "did:web:facts.example"],
    "app register": ["my-store", "notes"],
    "app list": ["my-store"],
    "app type": ["my-store", "notes", "parent", "note"],
    "app types": ["my-store", "notes"],
    "app limits": ["my-store", "notes", "--rows", "1000"],
    "app stats": ["my-store"],
    "app insert": ["my-store", "notes", '{"op": "parent_create", "type_key": "note"}'],
    "app query": ["my-store", "notes"],
    "app history": ["my-store", "notes", "parent", "1"],
    "app feed": ["my-store"],
    "app sync key": ["my.key"],
    "app sync domain": ["my-store", "messages", "4"],
    "app sync peer": ["my-store", KEY.public_key],
    "app sync identities": ["my-store", "--rebuild"],
    "app sync export": ["my-store", "messages", "out.json", "--key", "my.key"],
    "app sync import": ["bob", "out.json", "--peer", "1"],
    "app sync status": ["bob"],
    "stream create": ["my-store", "orders"],
    "stream list": ["my-store"],
    "stream show": ["my-store", "orders"],
    "stream stats": ["my-store"],
    "stream set": ["my-store", "orders", "--keep-seconds", "86400"],
    "stream fork": ["my-store", "orders", "draft"],
    "stream close": ["my-store", "draft"],
    "stream delete": ["my-store", "draft"],
    "stream sweep": ["my-store"],
    "stream append": ["my-store", "orders", '{"id": 1}'],
    "stream read": ["my-store", "orders"],
    "stream tail": ["my-store", "orders"],
    "stream state": ["my-store", "orders"],
    "stream schema show": ["ruled", "orders"],
    "stream schema set": ["ruled", "orders", "order.json"],
    "stream schema key": ["ruled", "orders", "/customer/id"],
    "stream schema fields": ["ruled", "orders", "status"],
    "stream profile show": ["ruled", "orders"],
    "stream profile set": ["ruled", "todos", "state-protocol", "--touch"],
    "stream touch show": ["ruled", "todos"],
    "stream touch template": ["ruled", "todos", "todo", "list"],
    "stream touch wait": ["ruled", "todos", "--entity", "todo", "--timeout", "0"],
    "serve": ENDLESS,
    "key add": ["my-store"],
    "key list": ["my-store"],
    "key remove": ["bob", "0123abcd"],
    "session list": ["bob"],
    "session show": ["bob", "s-1"],
    "session log": ["bob", "s-1"],
    "session payload": ["bob", content_id(encode("x" * 600))],
    "session tree": ["bob", "s-1"],
    "session diff": ["bob", "s-1"],
    "session export": ["bob", "s-1", "--output", "s-1.ndjson"],
    "session import": ["elsewhere", "s-1.ndjson"],
    "session verify": ["bob"],
    "session gc": ["bob"],
    "sql": ["select count(*) as n from commits", "--root", "my-store"],
    "pipeline list": [],
    "pipeline run bootstrap": ["bob", "--dry-run"],
    "pipeline run compact": ["my-store", "--dry-run"],
    "pipeline run components": ["my-store", "--dry-run"],
    "pipeline run delta-log": ["bob", "--dry-run"],
    "pipeline run gc": ["bob"],
    "pipeline run index": ["my-store", "--dry-run"],
    "pipeline run lineage": ["bob", "--head", content_id(b"head"), "--dry-run"],
    "pipeline run load": ["my-store", "--from", "shop.ndjson", "--space", SPACE[1], "--dry-run"],
    "pipeline run materialize": ["my-store", "--into", "tables", "--dry-run"],
    "pipeline run seal": ["my-store", "--dry-run"],
    "pipeline run snapshots": ["bob"],
    "pipeline run stats": ["bob"],
    "pipeline run verify": ["bob"],
    "pipeline status": ["my-store"],
    "pipeline history": ["my-store"],
    "backup": ["my-store", "copy"],
    "restore": ["copy", "again"],
    "publish": ["my-store", "--objects", "published"],
    "bootstrap": ["rebuilt", "--objects", "published"],
    "verify": ["again"],
    "doctor": ["again"],
    "config": ["again"],
    "version": [],
}


def test_the_json_documents_have_the_keys_that_are_documented(tmp_path):
    single = [
        path for path, command in generate.iter_commands() if not isinstance(command, click.Group)
    ]
    assert [f"fourfold {name}" for name in CALLS] == single
    (tmp_path / "some-bytes").write_bytes(b"bytes")
    (tmp_path / "my.key").write_bytes(base64.b64encode(KEY.private_bytes()))
    (tmp_path / "order.json").write_text('{"type": "object", "required": ["id"]}')
    with fourfold.open(tmp_path / "ruled") as store:
        for name in ("orders", "todos"):
            store.streams.create(name, "application/json")
    (tmp_path / "bob").mkdir()
    known = {"id": "0123abcd", "sha256": "0" * 64, "scopes": ["read"]}
    with fourfold.open(tmp_path / "bob") as store:
        (tmp_path / "bob" / "access.json").write_text(json.dumps({"keys": [known]}))
        store.sessions.create_session({"id": "s-1", "model": "any"})
        store.sessions.intern_payload("x" * 600)
        store.sessions.publish_head("s-1")
        store.sessions.publish_head("s-1")
        store.graphs.register_app("notes", "Notes")
        store.graphs.define_domain("messages", 1)
        store.graphs.add_peer(store.graphs.add_identity(KEY.public_key).id, "file:")
    names = [name for name, arguments in CALLS.items() if arguments is not ENDLESS]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_commands.py")],
        input=json.dumps([[*name.split(), *CALLS[name], "--json"] for name in names]),
        cwd=tmp_path,
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, output in zip(names, json.loads(done.stdout), strict=True):
        section = markdown.section(page("cli.md"), f"## `fourfold {name}`")
        shown = next(block for block in markdown.blocks(section) if block.language == "json")
        assert json.loads(output).keys() == json.loads(shown.text).keys(), name


@pytest.mark.parametrize("setting", list(settings.SETTINGS.values()), ids=lambda item: item.name)
def test_every_setting_is_documented_with_its_variable_default_and_range(setting):
    text = " ".join(markdown.section(page("config.md"), f"### `{setting.name}`").split())
    for part in (f"`{setting.variable}`", f"`{setting.default}`", setting.expects):
        assert part in text, part
    assert setting.description in text


@pytest.mark.parametrize("variable", list(settings.NOT_SETTINGS))
def test_every_other_variable_is_documented(variable):
    assert f"`{variable}`" in page("config.md")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.kind)
def test_every_error_kind_is_documented_as_it_is(cls):
    again = "yes" if cls.retryable else "no"
    row = f"| `{cls.kind}` | `{cls.__name__}` | {again} | {cls.exit_code} |"
    assert row in page("errors.md")


@pytest.mark.parametrize("path", PAGES, ids=tree.short)
def test_links_within_the_repository_resolve(path):
    broken = []
    for line, target in markdown.links(path.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = unquote(target).partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.exists():
            broken.append(f"{line}: {target} does not exist")
        elif anchor and anchor not in markdown.anchors(found.read_text(encoding="utf-8")):
            broken.append(f"{line}: {target} has no such heading")
    assert not broken


@pytest.mark.parametrize("path", PAGES, ids=tree.short)
def test_every_fence_says_a_language_that_the_tests_know(path):
    for block in markdown.blocks(path.read_text(encoding="utf-8")):
        assert block.language in markdown.LANGUAGES, f"line {block.line}: {block.language}"


SAMPLE = """\
# A page

See [here](other.md#a-part), not `[there](nowhere.md)`.

```python
x = 1
```

<!-- not run: it would delete the moon -->
```python
raise SystemExit
```

## A `part`, second

```console
$ fourfold version
fourfold  0
$ rm -rf \\
things
```

## A part
## A part
"""


def test_the_examples_of_a_page_are_found_in_order():
    assert markdown.steps(SAMPLE) == [
        ("python", 6, "x = 1\n"),
        ("shell", 17, "fourfold version", "fourfold  0\n"),
        ("shell", 19, "rm -rf \\\nthings", ""),
    ]


def test_links_and_headings_of_a_page_are_found():
    assert markdown.links(SAMPLE) == [(3, "other.md#a-part")]
    assert markdown.anchors(SAMPLE) == {"a-page", "a-part-second", "a-part", "a-part-1"}


def test_a_section_ends_where_the_next_one_starts():
    assert "moon" not in markdown.section(SAMPLE, "## A `part`, second")
    assert "rm -rf" in markdown.section(SAMPLE, "## A `part`, second")
    assert "rm -rf" in markdown.section(SAMPLE, "# A page")
