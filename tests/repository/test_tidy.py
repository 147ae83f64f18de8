"""The style guide as a test: sizes, names, leftovers, and where SQL and printing may live."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache, lru_cache

import pytest
import repository_files as tree

LINES_PER_FILE_MAX = 820
LINES_PER_FUNCTION_MAX = 70
BANNED_NAMES = {"utils", "common", "helpers", "helper", "manager", "misc", "base", "core"}

# The patterns are written so that they do not match their own text.
LEFTOVER = re.compile(r"\b(?:TO{1}DO|FIX{1}ME|XX{1}X)\b")
MACHINE_PATH = re.compile(r"(?<![\w./~$}])/(?:work|root|home/[a-z]\w*|Users/\w+)/")
REGISTRY = re.compile(
    r"--(?:extra-)?index-ur[l]|--find-link[s]|--trusted-hos[t]"
    r"|https?://[^\s/\"'<>]*(?:artifactory|nexus|devpi|registry|mirror|pypi(?!\.org\b))[^\s/\"'<>]*",
    re.IGNORECASE,
)
BANNED_WORDS = ("anew", "behind", "nobody", "somebody", "told", "whoever")
BANNED = re.compile(rf"\b(?:{'|'.join(BANNED_WORDS)})\b", re.IGNORECASE)
PLACES = re.compile(r"\bbehind a (?:proxy|URL)|left-behind/", re.IGNORECASE)
"""Where "behind" is a place, not an order; the last one is a name in the object store."""
SOURCE_WORDS_MAX = {"behind": 2, "told": 17, "whoever": 1}
"""Left in src: a column of a table and its comments, which are a format; a number may only fall."""
LINES_PER_MODULE_MIN = 40
TINY_MODULES = {
    "fourfold.pipeline.streams.tables": "each model has one, which adds its folds to the registry",
    "fourfold.server.models": "one line for each model that the server serves",
    "fourfold.server.errors": "removes paths of the server from messages; reviewed on its own",
}
"""Modules with fewer lines that one other module imports, and why they stand alone."""
SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|REPLACE|ALTER|DROP|PRAGMA|WITH)\s")


@lru_cache(maxsize=1)
def nodes(module):
    """Return the nodes of a module, which several rules look at one after the other."""
    return list(ast.walk(module))


def too_long(source, module):
    del module
    lines = source.count("\n")
    if lines > LINES_PER_FILE_MAX:
        yield 1, f"{lines} lines; a file has at most {LINES_PER_FILE_MAX}"


def long_functions(source, module):
    del source
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > LINES_PER_FUNCTION_MAX:
                yield (
                    node.lineno,
                    f"{node.name} has {lines} lines; at most {LINES_PER_FUNCTION_MAX}",
                )


def banned_classes(source, module):
    del source
    for node in nodes(module):
        if isinstance(node, ast.ClassDef) and node.name.strip("_").lower() in BANNED_NAMES:
            yield node.lineno, f"a class called {node.name} says nothing; name what it is"


def missing_docstring(source, module):
    del source
    if not ast.get_docstring(module):
        yield 1, "the module does not say what it promises"


def prints(source, module):
    del source
    for node in nodes(module):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            yield node.lineno, "only the command line prints"


def sql_literals(source, module):
    del source
    for node in nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value):
            yield node.lineno, "SQL lives in .sql files"


def leftovers(source, module):
    del module
    yield from _matches(LEFTOVER, source, "is left over")


def machine_paths(source, module):
    del module
    yield from _matches(MACHINE_PATH, source, "is a path of one machine")


def registries(source, module):
    del module
    yield from _matches(REGISTRY, source, "names a package index")


def banned_words(source, module):
    del module
    yield from _matches(BANNED, PLACES.sub("", source), "is not plain English; see the style guide")


def _matches(pattern, source, complaint):
    for number, line in enumerate(source.splitlines(), start=1):
        if found := pattern.search(line):
            yield number, f"{found.group()} {complaint}"


def tiny_modules(sources):
    """Yield the modules that are short and imported by a single other one.

    `sources` are texts by module name. A module that only its own package re-exports is fine.
    """
    importers = {name: set() for name in sources}
    for name, source in sources.items():
        for node in nodes(ast.parse(source)):
            for imported in _imported(node):
                if imported in importers and imported != name:
                    importers[imported].add(name)
    for name, source in sources.items():
        one = len(importers[name]) == 1 and importers[name] != {name.rpartition(".")[0]}
        if one and source.count("\n") < LINES_PER_MODULE_MIN:
            yield name


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def everywhere(_path):
    return True


def in_source(path):
    return path.startswith("src/")


def in_source_outside_the_command_line(path):
    return in_source(path) and not path.startswith("src/fourfold/cli/")


def in_source_outside_the_kernel(path):
    return in_source(path) and not path.startswith("src/fourfold/kernel/")


PYTHON_RULES = [
    (too_long, everywhere),
    (long_functions, everywhere),
    (banned_classes, everywhere),
    (missing_docstring, everywhere),
    (prints, in_source_outside_the_command_line),
    (sql_literals, in_source_outside_the_kernel),
]
TEXT_RULES = [leftovers, machine_paths, registries]


def complaints(rule, paths):
    found = []
    for path in paths:
        source = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{tree.short(path)}:{line}: {text}" for line, text in rule(source, None)]
    return found


@cache
def python_complaints():
    """Return the complaints by rule; each file is parsed once for all of them."""
    found = {rule: [] for rule, _ in PYTHON_RULES}
    for path in tree.python_files():
        name = tree.short(path)
        source = path.read_text(encoding="utf-8", errors="replace")
        module = ast.parse(source)
        for rule, applies in PYTHON_RULES:
            if applies(name):
                found[rule] += [f"{name}:{line}: {text}" for line, text in rule(source, module)]
    return found


@pytest.mark.parametrize("rule", dict(PYTHON_RULES), ids=lambda rule: rule.__name__)
def test_every_python_file_is_tidy(rule):
    assert not python_complaints()[rule]


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_no_text_file_leaks_where_it_was_written(rule):
    assert not complaints(rule, tree.text_files())


def test_the_documentation_is_in_plain_words():
    pages = [*tree.pages(), *(path for path in tree.files() if "examples" in path.parts)]
    assert not complaints(banned_words, pages)


def test_banned_words_in_the_source_only_become_fewer():
    counts = Counter()
    for path in tree.text_files():
        if in_source(tree.short(path)):
            source = PLACES.sub("", path.read_text(encoding="utf-8"))
            counts.update(word.lower() for word in BANNED.findall(source))
    risen = {word: n for word, n in counts.items() if n > SOURCE_WORDS_MAX.get(word, 0)}
    assert not risen, "lower the numbers in SOURCE_WORDS_MAX; none may rise"


def test_tiny_modules_with_one_importer_have_a_reason():
    source = tree.ROOT / "src"
    modules = {}
    for path in tree.python_files():
        if in_source(tree.short(path)):
            name = ".".join(path.relative_to(source).with_suffix("").parts)
            text = path.read_text(encoding="utf-8")
            modules[name.removesuffix(".__init__")] = text
    packages = {name.rpartition(".")[0] for name in modules}
    tiny = set(tiny_modules(modules)) - packages - {"fourfold.__main__"}
    assert tiny <= TINY_MODULES.keys(), "merge it into its importer"


def test_a_tiny_module_is_found_by_its_importer():
    long = "x = 1\n" * LINES_PER_MODULE_MIN
    small = {"p.a": "import q\nfrom p import b\n" + long, "p.b": "x = 1\n"}
    assert list(tiny_modules(small)) == ["p.b"]
    assert not list(tiny_modules(small | {"p.c": "from p.b import x\n" + long}))
    assert not list(tiny_modules(small | {"p.b": long}))
    assert not list(tiny_modules({"p": "from p.b import x\n" + long, "p.b": "x = 1\n"}))


def test_no_file_or_folder_has_a_name_that_says_nothing():
    bad = [
        tree.short(path)
        for path in tree.python_files()
        if any(
            part.strip("_") in BANNED_NAMES
            for part in path.relative_to(tree.ROOT).with_suffix("").parts
        )
    ]
    assert not bad


def test_requirement_files_pin_by_hash_and_name_no_address():
    for path in tree.files():
        if path.suffix == ".txt" and path.parent.name == "requirements":
            text = path.read_text(encoding="utf-8")
            assert "://" not in text, tree.short(path)
            assert "--hash=sha256:" in text, tree.short(path)


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (too_long, "\n" * (LINES_PER_FILE_MAX + 1)),
        (long_functions, "def f():\n" + "    1\n" * LINES_PER_FUNCTION_MAX),
        (banned_classes, "class Manager: pass"),
        (missing_docstring, "x = 1"),
        (prints, "print(1)"),
        (sql_literals, "x = 'SELECT 1'"),
        (sql_literals, "x = f'INSERT INTO {table} VALUES (1)'"),
        (leftovers, "x = 1  # TO" + "DO: later"),
        (machine_paths, "open('/" + "work/main/x')"),
        (machine_paths, "/" + "root/.cache"),
        (registries, "--index" + "-url x"),
        (registries, "https" + "://pypi.example.com/simple"),
        (banned_words, "Who" + "ever writes, is to" + "ld"),
        (banned_words, "the records be" + "hind an offset"),
    ],
)
def test_each_rule_finds_what_it_is_for(rule, bad):
    assert list(rule(bad, ast.parse(bad) if rule in dict(PYTHON_RULES) else None))


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (sql_literals, "x = 'Select a file'"),
        (sql_literals, "x = 'SELECTED'"),
        (machine_paths, "~/W and ./W/y and $HOME/W/z and frame/W/".replace("W", "work")),
        (registries, "https" + "://py" + "pi.org/project/fourfold"),
        (banned_words, "Run the server be" + "hind a proxy."),
    ],
)
def test_no_rule_cries_wolf(rule, good):
    assert not list(rule(good, ast.parse(good) if rule in dict(PYTHON_RULES) else None))
