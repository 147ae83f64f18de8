"""What the packages export is there, and is loaded when it is first used and not before."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import repository_files as tree

import fourfold
from fourfold import errors

PACKAGES = ["fourfold", "fourfold.content", "fourfold.models.documents"]
HEAVY = ("apsw", "sqlite3", "fourfold.kernel", "fourfold.store", "fourfold.objects")
NAMES_MAX = 46
LIGHT = [
    "fourfold",
    "fourfold.content.canonical",
    "fourfold.content.merkle",
    "fourfold.content.payload_refs",
    "fourfold.errors",
    "fourfold.limits",
    "fourfold.models",
    "fourfold.models.documents",
    "fourfold.models.documents.diff",
    "fourfold.models.documents.field_merge",
    "fourfold.models.documents.fold",
    "fourfold.models.documents.overlap",
    "fourfold.models.documents.patch",
    "fourfold.content.json_pointer",
    "fourfold.models.documents.records",
]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_parts_without_a_database_load_none():
    imports = "\n".join(f"import {module}" for module in LIGHT)
    loaded = run(f"import sys\n{imports}\nprint(*sys.modules)").split()
    assert set(LIGHT) <= set(loaded)
    assert not [name for name in loaded if name.startswith(HEAVY)]


def test_records_of_the_package_load_no_database():
    loaded = run("import sys\nfrom fourfold import State, Commit\nprint(*sys.modules)").split()
    assert "fourfold.models.documents.records" in loaded
    assert not [name for name in loaded if name.startswith(HEAVY)]


def test_a_store_opens_by_the_short_name(tmp_path):
    program = f"""
import fourfold
with fourfold.open({str(tmp_path / "store")!r}) as store:
    space = store.space("did:key:a")
    assert type(space) is fourfold.Space and type(store) is fourfold.Store
    space.set("a", {{"n": 1}})
    print(type(space.read("a")) is fourfold.State)
"""
    assert run(program) == "True\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_exists_and_is_listed(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    program = f"from {package} import *\nprint(*globals())"
    assert set(module.__all__) - {"__version__"} <= set(run(program).split())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_exported_is_no_attribute(package):
    with pytest.raises(AttributeError, match=f"{package}.*nonsense"):
        importlib.import_module(package).nonsense  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_very_names_that_are_exported(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (guarded,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {}
    for statement in guarded.body:
        home = importlib.import_module(statement.module)
        for alias in statement.names:
            seen[alias.asname or alias.name] = getattr(home, alias.name)
    assert seen.keys() <= set(module.__all__)
    for name, thing in seen.items():
        assert getattr(module, name) is thing
    eager = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(module.__all__) <= seen.keys() | eager


def test_listing_the_package_shows_public_names_only():
    assert dir(importlib.import_module("fourfold")) == sorted(fourfold.__all__)


def test_the_package_exports_only_what_most_programs_need():
    """The modules in its docstring have the rest; a new name here replaces another one."""
    assert len(fourfold.__all__) <= NAMES_MAX
    modules = re.findall(r"^    (fourfold\.\w+)  ", fourfold.__doc__, re.MULTILINE)
    assert len(modules) == 7
    for module in modules:
        importlib.import_module(module)


def documented_names():
    """Yield (page, name) for each name that the documentation takes from the package itself."""
    pages = [page for page in tree.pages() if page.name != "CHANGELOG.md"]
    for page in [*pages, *tree.ROOT.glob("examples/**/*.py")]:
        text = page.read_text(encoding="utf-8")
        where = str(page.relative_to(tree.ROOT))
        for name in re.findall(r"\bfourfold\.([A-Z]\w*)", text):
            yield where, name
        for names in re.findall(r"^\s*from fourfold import \(?([\w, ]+)", text, re.MULTILINE):
            for name in names.split(","):
                yield where, name.split(" as ")[0].strip()


def test_names_in_the_documentation_are_exported():
    modules = {path.stem for path in Path(fourfold.__file__).parent.iterdir()}
    names = set(documented_names())
    assert {name for _, name in names} & set(fourfold.__all__)
    unknown = {(page, name) for page, name in names if name not in {*fourfold.__all__, *modules}}
    assert not unknown


def test_every_exported_name_is_documented():
    docs = tree.ROOT / "docs"
    pages = [*docs.glob("*.md"), *docs.glob("reference/*.md"), *docs.glob("tutorials/*.md")]
    words = {word for page in pages for word in re.findall(r"\w+", page.read_text("utf-8"))}
    assert not set(fourfold.__all__) - words


def test_every_branch_of_the_error_tree_is_exported():
    exported = {name for name in fourfold.__all__ if hasattr(errors, name)}
    for name in exported:
        assert getattr(fourfold, name) is getattr(errors, name)
    branches = {cls for cls in errors.FourfoldError.__subclasses__() if cls.__subclasses__()}
    assert {cls.__name__ for cls in branches} <= exported


def test_raisable_names_of_the_package_are_in_the_tree():
    raisable = {
        name
        for name in fourfold.__all__
        if isinstance(thing := getattr(fourfold, name), type) and issubclass(thing, Exception)
    }
    assert raisable <= {cls.__name__ for cls in errors.tree()}
