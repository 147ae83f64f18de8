"""The site of the documentation: its pages, navigation, drawings and links."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import ModuleType

import pytest
import repository_files as tree

DOCS = tree.ROOT / "docs"
LISTED_ELSEWHERE = re.compile(r"decisions/\d|README\.md")


@pytest.fixture(scope="module")
def hooks():
    """Return docs/site_hooks.py, which needs mkdocs for its pages of the API only."""
    if importlib.util.find_spec("mkdocs") is None:
        for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
            sys.modules[name] = ModuleType(name)
        sys.modules["mkdocs.structure.files"].File = object
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if sys.modules.get("mkdocs.structure.files", None).__dict__.get("File") is object:
        for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
            del sys.modules[name]


def test_every_page_is_in_the_navigation_once(hooks):
    listed = [page for pages in hooks.entries().values() for _, page, _ in pages]
    assert len(set(listed)) == len(listed)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if not LISTED_ELSEWHERE.search(page)} <= set(listed)
    assert set(listed) <= pages


def test_llms_text_lists_every_page_with_a_link(hooks):
    text = hooks.llms_text()
    assert text.startswith("# Fourfold\n\n> ")
    for pages in hooks.entries().values():
        for title, page, _ in pages:
            assert f"- [{title}]({page})" in text


def test_api_reference_has_every_exported_class_with_a_docstring(hooks):
    for package in hooks.PACKAGES:
        page = hooks.api_page(package)
        module = importlib.import_module(package)
        classes = [name for name in module.__all__ if isinstance(getattr(module, name), type)]
        for name in classes:
            entry = rf"^::: fourfold[\w.]*\.{getattr(module, name).__name__}$"
            assert re.search(entry, page, re.MULTILINE)


def test_drawings_are_those_of_the_code():
    sys.path.insert(0, str(DOCS))
    try:
        import drawings  # noqa: PLC0415 - a script of the documentation
    finally:
        sys.path.remove(str(DOCS))
    assert drawings.LAYERS.read_text(encoding="utf-8") == drawings.layers()
    assert drawings.DATA.read_text(encoding="utf-8") == drawings.data()


def test_links_out_of_the_site_become_paths(hooks):
    class Page:
        class file:  # noqa: N801 - the name is that of mkdocs
            src_uri = "howto/page.md"

    text = "[a](../../bench/x.py) [b](../start.md#install) [c](https://x.example)"
    expected = "a (`bench/x.py`) [b](../start.md#install) [c](https://x.example)"
    assert hooks.on_page_markdown(text, Page) == expected


class Links(HTMLParser):
    """Links, anchors and what is loaded from other hosts on a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.loaded = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        source = values.get("src") or (values.get("href") if tag == "link" else None)
        if source and "://" in source:
            self.loaded.append(source)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not (tree.ROOT / ".venv-docs" / "bin" / "python").exists(), reason="needs `make docs` before"
)
def test_site_builds_without_warnings_and_its_links_resolve(tmp_path):
    command = [tree.ROOT / ".venv-docs" / "bin" / "python", "-m", "mkdocs", "build", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", tmp_path / "site"],
        cwd=tree.ROOT,
        env=tree.environment(PYTHONPATH=str(tree.ROOT / "src"), NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        assert not page.loaded, path
        for link in page.links:
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith(("mailto:", "/")) or path.name == "404.html":
                continue
            found = (path.parent / target).resolve() if target else path
            if not found.exists() or (anchor and found in pages and anchor not in pages[found].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any(entry["location"].startswith("api/") for entry in index["docs"])
    assert (site / "llms.txt").exists()
    assert (site / "howto" / "from-kafka.md").exists()
