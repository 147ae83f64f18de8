"""The documentation cannot drift: references are complete, links resolve, examples run."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import click
import markdown_pages as markdown
import repository_files as tree
from test_error_tree import CLASSES, generate

import fourfold
from fourfold import settings
from fourfold.cli import doctor
from fourfold.content import content_id, encode
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.models.sessions import Sessions
from support.documented_json import documented_json

REFERENCE = tree.ROOT / "docs" / "reference"
PAGES = tree.pages()


def page(name):
    return (REFERENCE / name).read_text(encoding="utf-8")


SHARED = generate.SHARED_OPTIONS


def test_every_command_argument_and_option_is_documented():
    text = page("cli.md")
    missing = []
    for path, command in generate.iter_commands():
        section = markdown.section(text, f"## `{path}`")
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                options = [*parameter.opts, *parameter.secondary_opts]
                own = [name for name in options if name not in SHARED]
                missing += [f"{path} {name}" for name in own if f"`{name}" not in section]
            elif parameter.human_readable_name not in section:
                missing.append(f"{path} {parameter.human_readable_name}")
    assert not missing


def test_reference_of_the_command_line_is_generated_from_the_commands():
    text = page("cli.md")
    assert generate.with_commands(text) == text, "run: python docs/generate.py"


def test_routes_of_the_http_reference_are_those_of_the_table():
    text = page("http.md")
    assert generate.with_routes(text) == text, "run: python docs/generate.py"


def test_options_that_every_command_has_are_documented_once():
    section = markdown.section(page("cli.md"), "## Every command")
    options = [*SHARED, "--help", "--version"]
    assert not [name for name in options if f"`{name}`" not in section]


def test_every_check_of_the_doctor_is_documented():
    section = markdown.section(page("cli.md"), "## `fourfold doctor`")
    for name in doctor.CHECKS:
        assert f"| `{name}` |" in section, name


ELSEWHERE = None
"""A command whose document another test checks: it is endless, or needs Spark."""
KEY = Ed25519Signer(bytes(range(32)))
EPOCH = "1000"
"""Epoch of a lease that was claimed one second after 1970."""
SPACE = ["my-store", "did:web:shop.example"]
MEMORY = ["my-store", "assistant"]
CALLS = {
    "demo": ELSEWHERE,
    "show": ["ruled"],
    "open": ELSEWHERE,
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
    "space search": ["bob", "did:web:bob.example", "hello"],
    "space follow": ELSEWHERE,
    "space find": [*SPACE, "{}"],
    "space count": SPACE,
    "space facets": [*SPACE, "title"],
    "space index create": [*SPACE, "by_title", "/title"],
    "space index list": SPACE,
    "space index rebuild": [*SPACE, "by_title"],
    "space index drop": [*SPACE, "by_title"],
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
    "memory put": [*MEMORY, "users/ada", "food", '{"likes": "leek soup"}'],
    "memory forget": [*MEMORY, "users/ada", "food"],
    "memory sweep": MEMORY,
    "memory purge": [*MEMORY, "users/ada"],
    "memory get": ["bob", "assistant", "users/ada", "food"],
    "memory search": ["bob", "assistant", "soup"],
    "memory list": MEMORY,
    "memory namespaces": MEMORY,
    "memory history": ["bob", "assistant", "users/ada", "food"],
    "memory diff": ["bob", "assistant", "0"],
    "memory names": ["bob"],
    "app register": ["my-store", "notes"],
    "app list": ["my-store"],
    "app type": ["my-store", "notes", "parent", "note"],
    "app types": ["my-store", "notes"],
    "app rule": ["bob", "notes", "rating", "stars", '{"value": "number"}'],
    "app describe": ["my-store", "notes"],
    "app upgrade": ["my-store", "notes", ".", "--dry-run"],
    "app limits": ["my-store", "notes", "--rows", "1000"],
    "app stats": ["my-store"],
    "app insert": ["my-store", "notes", '{"op": "parent_create", "type_key": "note"}'],
    "app query": ["my-store", "notes"],
    "app history": ["my-store", "notes", "parent", "1"],
    "app trace": ["my-store", "notes", "import"],
    "app feed": ["my-store"],
    "app find": ["bob", "notes", "stars", "--kind", "rating"],
    "app top": ["bob", "notes", "stars"],
    "app neighbours": ["my-store", "notes", "1"],
    "app path": ["my-store", "notes", "1", "1"],
    "app match": ["my-store", "notes", '{"nodes": {"a": {}}}'],
    "app sync key": ["my.key"],
    "app sync domain": ["my-store", "messages", "4"],
    "app sync peer": ["my-store", KEY.public_key],
    "app sync allow": ["my-store", "1", "messages"],
    "app sync identities": ["my-store", "--rebuild"],
    "app sync run": ELSEWHERE,
    "app sync pull": ELSEWHERE,
    "app sync push": ELSEWHERE,
    "app sync export": ["my-store", "messages", "out.sync", "--key", "my.key"],
    "app sync import": ["bob", "out.sync", "--peer", "1"],
    "app sync tips": ["bob", "messages", "tips.json"],
    "app sync confirm": ["my-store", "tips.json", "--peer", "1"],
    "app sync status": ["bob"],
    "app sync refusals": ["bob"],
    "app sync forks": ["bob"],
    "app sync parked": ["bob"],
    "app sync migrate": ["bob", "before-migration.db"],
    "app gc": ["my-store"],
    "stream create": ["my-store", "orders"],
    "stream list": ["my-store"],
    "stream show": ["my-store", "orders"],
    "stream keys": ["my-store", "orders"],
    "stream stats": ["my-store"],
    "stream set": ["my-store", "orders", "--keep-seconds", "86400"],
    "stream fork": ["my-store", "orders", "draft"],
    "stream close": ["my-store", "draft"],
    "stream delete": ["my-store", "draft"],
    "stream compact": ["ruled", "states", "--horizon", "now"],
    "stream gc": ["my-store"],
    "stream append": ["my-store", "orders", '{"id": 1}'],
    "stream read": ["my-store", "orders"],
    "stream tail": ["my-store", "orders"],
    "stream follow": ["my-store", "orders", "--timeout", "0"],
    "stream search": ["my-store", "orders", "id:1", "--total"],
    "stream state": ["my-store", "orders"],
    "stream schema show": ["ruled", "orders"],
    "stream schema set": ["ruled", "orders", "order.json"],
    "stream schema key": ["ruled", "orders", "/customer/id"],
    "stream schema fields": ["ruled", "orders", "status"],
    "stream schema search": ["ruled", "orders", "--text", "message"],
    "stream profile show": ["ruled", "orders"],
    "stream profile set": ["ruled", "todos", "state-protocol", "--touch"],
    "stream touch show": ["ruled", "todos"],
    "stream touch template": ["ruled", "todos", "todo", "list"],
    "stream touch wait": ["ruled", "todos", "--entity", "todo", "--timeout", "0"],
    "serve": ELSEWHERE,
    "key add": ["my-store"],
    "key expire": ["bob", "0123abcd"],
    "key list": ["my-store"],
    "key remove": ["bob", "0123abcd"],
    "key rotate": ["bob", "4567cdef"],
    "audit": ["bob"],
    "session list": ["bob"],
    "session search": ["bob", "zebra"],
    "session show": ["bob", "s-1"],
    "session log": ["bob", "s-1"],
    "session payload": ["bob", content_id(encode("x" * 600))],
    "session tree": ["bob", "s-1"],
    "session diff": ["bob", "s-1"],
    "session export": ["bob", "s-1", "--output", "s-1.ndjson"],
    "session import": ["elsewhere", "s-1.ndjson"],
    "session claim": ["bob", "s-1", "worker 1"],
    "session renew": ["bob", "owned", EPOCH],
    "session release": ["bob", "owned", EPOCH],
    "session leases": ["bob"],
    "session verify": ["bob"],
    "session retention": ["bob", "--max-age", "90d", "--dry-run"],
    "session policies": ["bob"],
    "session set-policy": ["bob", "chat/", "--keep-latest", "100"],
    "session delete-policy": ["bob", "chat/"],
    "session gc": ["bob"],
    "mcp": ELSEWHERE,
    "sql": ["select count(*) as n from commits", "--root", "my-store"],
    "job start": ELSEWHERE,
    "job cancel": ELSEWHERE,
    "job list": ELSEWHERE,
    "job show": ELSEWHERE,
    "pipeline list": [],
    "pipeline run bootstrap": ["bob", "--dry-run"],
    "pipeline run compact": ["my-store", "--dry-run"],
    "pipeline run companions": ["my-store", "--dry-run"],
    "pipeline run components": ["my-store", "--dry-run"],
    "pipeline run delta-log": ["bob", "--dry-run"],
    "pipeline run gc": ELSEWHERE,
    "pipeline run index": ["my-store", "--dry-run"],
    "pipeline run lineage": ["bob", "--head", content_id(b"head"), "--dry-run"],
    "pipeline run load": ["my-store", "--from", "shop.ndjson", "--space", SPACE[1], "--dry-run"],
    "pipeline run materialize": ["my-store", "--into", "tables", "--dry-run"],
    "pipeline run seal": ["my-store", "--dry-run"],
    "pipeline run snapshots": ELSEWHERE,
    "pipeline run stats": ELSEWHERE,
    "pipeline run verify": ELSEWHERE,
    "pipeline status": ["my-store"],
    "pipeline history": ["my-store"],
    "backup": ["my-store", "copy"],
    "restore": ["copy", "again"],
    "publish": ["my-store", "--objects", "published"],
    "bootstrap": ["rebuilt", "--objects", "published"],
    "drill": ["my-store"],
    "follow": ["published", "replica", "--once"],
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
        store.streams.create("states", "application/json").set_profile("state-protocol")
    (tmp_path / "bob").mkdir()
    known = [
        {"id": name, "sha256": name * 8, "scopes": ["read"]} for name in ("0123abcd", "4567cdef")
    ]
    with fourfold.open(tmp_path / "bob") as store:
        (tmp_path / "bob" / "access.json").write_text(json.dumps({"keys": known}))
        words = store.space("did:web:bob.example")
        words.set("note", {"title": "Hello"})
        words.indexes.create("words", "/title", kind="text")
        store.memory("assistant").put(("users", "ada"), "food", {"likes": "leek soup"})
        store.sessions.create_session({"id": "s-1", "model": "any"})
        store.sessions.intern_payload("x" * 600)
        store.sessions.create_session({"id": "owned"})
        said = {"type": "message/appended", "message": {"role": "user", "content": "a zebra"}}
        store.sessions.append_event("owned", said)
        second = datetime.fromtimestamp(1, UTC)
        Sessions(store.sessions.log, clock=lambda: second).claim("owned", "worker 2")
        store.sessions.publish_head("s-1")
        store.sessions.publish_head("s-1")
        notes = store.graphs.create("notes", "Notes")
        notes.register_type("rating", "stars")
        store.graphs.define_domain("messages", 1)
        store.graphs.add_peer(store.graphs.add_identity(KEY.public_key).id, "file:")
        store.graphs.allow_peer(1, "messages")
    names = [name for name, arguments in CALLS.items() if arguments is not ELSEWHERE]
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
        assert json.loads(output).keys() == documented_json(name).keys(), name


def test_every_setting_is_documented_with_its_variable_default_and_range():
    config = page("config.md")
    missing = []
    for setting in settings.SETTINGS.values():
        text = " ".join(markdown.section(config, f"### `{setting.name}`").split())
        parts = (f"`{setting.variable}`", f"`{setting.default}`", setting.expects)
        parts = (*parts, setting.description)
        missing += [f"{setting.name}: {part}" for part in parts if part not in text]
    assert not missing


def test_every_other_variable_is_documented():
    text = page("config.md")
    assert not [name for name in settings.NOT_SETTINGS if f"`{name}`" not in text]


def test_every_error_kind_is_documented_as_it_is():
    text = page("errors.md")
    missing = []
    for cls in CLASSES:
        again = "yes" if cls.retryable else "no"
        row = f"| `{cls.kind}` | `{cls.__name__}` | {again} | {cls.exit_code} |"
        if row not in text:
            missing.append(row)
    assert not missing


def test_links_within_the_repository_resolve():
    @cache
    def anchors(path):
        return markdown.anchors(path.read_text(encoding="utf-8"))

    broken = []
    for path in PAGES:
        for line, target in markdown.links(path.read_text(encoding="utf-8")):
            if "://" in target or target.startswith("mailto:"):
                continue
            name, _, anchor = unquote(target).partition("#")
            linked = (path.parent / name).resolve() if name else path
            if not linked.exists():
                broken.append(f"{tree.short(path)}:{line}: {target} does not exist")
            elif anchor and anchor not in anchors(linked):
                broken.append(f"{tree.short(path)}:{line}: {target} has no such heading")
    assert not broken


def test_every_fence_has_a_language_that_the_tests_know():
    unknown = [
        f"{tree.short(path)}:{block.line}: {block.language}"
        for path in PAGES
        for block in markdown.blocks(path.read_text(encoding="utf-8"))
        if block.language not in markdown.LANGUAGES
    ]
    assert not unknown


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
