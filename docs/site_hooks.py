"""What `make docs` adds to the pages: navigation, the API reference, and llms.txt.

The navigation is that of docs/README.md. The API reference has a page for each public package,
with every name that it exports, from the docstrings. `llms.txt` lists all pages with a sentence
each, and their sources are beside them, for programs that read Markdown.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

DOCS = Path(__file__).parent
PACKAGES = (
    "fourfold",
    "fourfold.client",
    "fourfold.models.documents",
    "fourfold.models.streams",
    "fourfold.models.graphs",
    "fourfold.models.sessions",
    "fourfold.pipeline",
    "fourfold.kernel",
    "fourfold.objects",
    "fourfold.blobs",
    "fourfold.content",
)
_ENTRY = re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[^)]+\.md)\)(?:: (?P<about>.*))?$")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^]]+)\]\((?P<target>[^)#\s]+)(?:#[^)\s]*)?\)")


def entries() -> dict[str, list[tuple[str, str, str]]]:
    """Return title, page and sentence of the entries of docs/README.md, by section."""
    sections: dict[str, list[tuple[str, str, str]]] = {}
    section = "Guide"
    for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif match := _ENTRY.match(line):
            entry = (match["title"], match["page"], match["about"] or "")
            sections.setdefault(section, []).append(entry)
    return sections


def api_page(package: str) -> str:
    """Return the page of a package: its description, and every name that it exports."""
    module = import_module(package)
    lines = [f"# {package}", "", (module.__doc__ or "").strip(), ""]
    for name in sorted(module.__all__, key=str.lower):
        exported = getattr(module, name)
        owner = getattr(exported, "__module__", "")
        if owner.startswith("fourfold") and hasattr(exported, "__qualname__"):
            lines += [f"::: {owner}.{exported.__qualname__}", ""]
    return "\n".join(lines)


def api_path(package: str) -> str:
    return f"api/{package}.md"


def on_config(config: Any) -> Any:
    """Take the navigation from docs/README.md."""
    sections = {
        title: [{name: page} for name, page, _ in pages] for title, pages in entries().items()
    }
    api = [{package: api_path(package)} for package in PACKAGES]
    config.nav = [
        {"Home": "README.md"},
        *({title: pages} for title, pages in sections.items()),
        {"API": api},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the API reference."""
    for package in PACKAGES:
        files.append(File.generated(config, api_path(package), content=api_page(package)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files that are not part of the site by their paths."""
    folder = PurePosixPath(page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        target = match["target"]
        path = os.path.normpath(folder / target)
        if "://" in target or not path.startswith(".."):
            return match[0]
        name = path.removeprefix("../")
        return f"{match['text']} (`{name}`)"

    return _LINK.sub(replaced, markdown)


def llms_text() -> str:
    """Return the list of pages for programs that read Markdown."""
    lines = [
        "# Fourfold",
        "",
        "> Application state as append-only logs in SQLite files you own: documents, streams,",
        "> graphs and sessions, each the fold of a log, with a Spark pipeline over all of history.",
    ]
    for section, pages in entries().items():
        lines += ["", f"## {section}", ""]
        lines += [
            f"- [{title}]({page})" + (f": {about}" if about else "") for title, page, about in pages
        ]
    return "\n".join([*lines, ""])


def on_post_build(config: Any) -> None:
    """Write llms.txt, and the sources of the pages that it lists."""
    site = Path(config.site_dir)
    (site / "llms.txt").write_text(llms_text(), encoding="utf-8")
    for pages in entries().values():
        for _, page, _ in pages:
            (site / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(DOCS / page, site / page)
