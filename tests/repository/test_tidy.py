"""The style guide as a test: sizes, names, leftovers, and where SQL and printing may live."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache, lru_cache
from itertools import pairwise

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
BANNED_IN_NAMES = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED_WORDS)})(?![a-z])", re.IGNORECASE)
METAPHORS = (
    *("bell", "crowd", "desk", "discretion", "ear", "echoes", "forgive", "patience", "scout"),
    *("seat", "shelf", "vigil", "wedge", "witness"),
)
"""Words that stood for a term of the field: a notifier, a lease, a timeout."""
METAPHOR = re.compile(rf"(?<![a-z])(?:{'|'.join(METAPHORS)})s?(?![a-z])", re.IGNORECASE)
SPEAKING = re.compile(r"\b(?:speaks? of|lets? go of|says nothing of)\b", re.IGNORECASE)
"""What a row or a process cannot do: it refers to, trims or sends."""
PLACES = re.compile(r"\bbehind a (?:proxy|URL)|left-behind|stream_seq_behind", re.IGNORECASE)
"""Where "behind" is a place, not an order; a name in the object store, and a kind of error."""
SOURCE_WORDS_MAX = {"told": 16}
"""Left in src: a column of a table, which is a format; a number may only fall."""
LINES_PER_MODULE_MIN = 60
TINY_MODULES = {
    "fourfold.archive.table_verify": "belongs to the archive; the store above it calls it",
    "fourfold.client.coroutines.remote_rules": "schemas and profiles, beside streams",
    "fourfold.client.threads.remote_rules": "schemas and profiles, beside streams",
    "fourfold.models.documents.indexes.trim": "belongs to the indexes; gc calls it",
    "fourfold.server.health": "probes, without the protocol of streams that serves them",
}
"""Modules with fewer lines that one other module imports, and why they stand alone."""
_CLIENT_TWIN = "the client's twin of a local class: the same thing, on a server"
_WIRE_TWIN = "the JSON of the class of the same name; a component of the OpenAPI description"
_SINK_TWIN = "the sinks of documents and of streams have the same parts"
_EACH_MODEL = "the result of the same call in two models"
SHARED_CLASS_NAMES = {
    "AppendResult": _CLIENT_TWIN,
    "BatchReport": _SINK_TWIN,
    "BatchWriter": _SINK_TWIN,
    "Boundary": _CLIENT_TWIN,
    "Follower": _CLIENT_TWIN,
    "GcReport": _EACH_MODEL,
    "GraphChange": _WIRE_TWIN,
    "Head": "the head of a session; and an operation of lenses, which are called by their names",
    "Health": "the health of a database, and of a server; a component of the OpenAPI description",
    "Message": _SINK_TWIN,
    "Problem": "the result of a check; and the name of RFC 9457 for an error over HTTP",
    "RegistryChange": _WIRE_TWIN,
    "Response": "a response over HTTP, as the server sends it and as the client receives it",
    "RoutingKey": _CLIENT_TWIN,
    "SearchHit": _EACH_MODEL,
    "SearchPage": _EACH_MODEL,
    "SpaceInfo": _WIRE_TWIN,
    "Stream": _CLIENT_TWIN,
    "StreamWriter": _SINK_TWIN,
    "Transaction": "a transaction; and its JSON, a component of the OpenAPI description",
    "WriteOptions": _SINK_TWIN,
    "_Fold": "the running fold of documents, and of sessions",
}
"""Class names that two modules of src define, and why they may; any other has one meaning."""
VAGUE_FIRST_LINE = re.compile(r"(?:What|How|Where|Whether|The same)\b")
PARTICIPLE_CLASS = re.compile(
    r"_?(?:[A-Z][a-z]*[a-df-z]ed|Lost|Gone|Done|Kept|Made|Found|Told|Held|Sent|Taken|Given|Built)$"
)
TEST_NAME_WORDS_MAX = 10
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


def misplaced_docstrings(source, module):
    """Yield texts that directly follow another text: one of the two describes nothing."""
    del source
    for node in nodes(module):
        body = getattr(node, "body", None)
        for first, second in pairwise(body if isinstance(body, list) else ()):
            if _is_text(first) and _is_text(second):
                yield second.lineno, "a docstring belongs directly after what it describes"


def _is_text(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def vague_first_lines(source, module):
    """Yield docstrings of public definitions that do not say what the thing is or does."""
    del source
    for node in [module, *(node for node in nodes(module) if _is_public_definition(node))]:
        if VAGUE_FIRST_LINE.match(ast.get_docstring(node) or ""):
            yield getattr(node, "lineno", 1), "begin with a verb or a noun; see the style guide"


def participle_classes(source, module):
    """Yield classes that are named by a participle; names of errors may be adjectives."""
    del source
    for node in nodes(module):
        if isinstance(node, ast.ClassDef) and PARTICIPLE_CLASS.match(node.name):
            bases = {getattr(base, "id", "") for base in node.bases}
            if not any(base.endswith(("Error", "Exception")) for base in bases):
                yield node.lineno, f"a class called {node.name} is no noun"


def undocumented(source, module):
    """Yield public classes, functions and methods without a docstring.

    Overloads share that of the implementation; tests of a contract are named by their claims.
    """
    del source
    bodies = [module.body]
    for body in bodies:
        for node in body:
            if _is_public_definition(node):
                if not (ast.get_docstring(node) or _is_overload(node)):
                    yield node.lineno, f"{node.name} has no docstring"
                if isinstance(node, ast.ClassDef):
                    bodies.append(node.body)


def _is_overload(node):
    decorators = [getattr(decorator, "id", "") for decorator in node.decorator_list]
    return "overload" in decorators or node.name.startswith("test_")


def _is_public_definition(node):
    definitions = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, definitions) and not node.name.startswith("_")


def long_test_names(source, module):
    """Yield tests whose names have too many words."""
    del source
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = node.name.count("_")
            if node.name.startswith("test_") and words > TEST_NAME_WORDS_MAX:
                yield node.lineno, f"{node.name} has {words} words; at most {TEST_NAME_WORDS_MAX}"


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


def metaphors(source, module):
    """Yield metaphors where the field has a term, also in names such as `_Patience`."""
    del module
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", source)
    yield from _matches(METAPHOR, separated, "stands for a term of the field; name that")


def speaking(source, module):
    """Yield phrases in which rows and processes speak; comments of migrations are a format."""
    del module
    yield from _matches(SPEAKING, source, "stands for a term of the field; name that")


def banned_names(source, module):
    """Yield the banned words of a text and of the names in it, such as those of tests."""
    del module
    plain = PLACES.sub("", source)
    yield from _matches(BANNED_IN_NAMES, plain, "is not plain English; see the style guide")


def _matches(pattern, source, complaint):
    for number, line in enumerate(source.splitlines(), start=1):
        if found := pattern.search(line):
            yield number, f"{found.group()} {complaint}"


def tiny_modules(sources, imports):
    """Yield the modules that are short and imported by a single other one.

    `sources` are texts by module name, `imports` the names that each module imports. A module that
    only its own package re-exports is fine.
    """
    importers = {name: set() for name in sources}
    for name in sources:
        for imported in imports[name]:
            if imported in importers and imported != name:
                importers[imported].add(name)
    for name, source in sources.items():
        one = len(importers[name]) == 1 and importers[name] != {name.rpartition(".")[0]}
        if one and source.count("\n") < LINES_PER_MODULE_MIN:
            yield name


def imported_names(module):
    return {name for node in nodes(module) for name in _imported(node)}


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def shared_class_names(classes):
    """Return the names that several modules define; `classes` are pairs of module and name."""
    modules = {}
    for module, name in classes:
        modules.setdefault(name, set()).add(module)
    return {name for name, where in modules.items() if len(where) > 1}


def everywhere(_path):
    return True


def in_tests(path):
    return path.startswith("tests/")


def in_source(path):
    return path.startswith("src/")


def in_written_source(path):
    return in_source(path) and "client/threads/" not in path


def in_source_outside_the_command_line(path):
    return in_source(path) and not path.startswith("src/fourfold/cli/")


def in_source_outside_errors(path):
    return in_source(path) and path != "src/fourfold/errors.py"


def in_source_outside_the_kernel(path):
    return in_source(path) and not path.startswith("src/fourfold/kernel/")


PYTHON_RULES = [
    (too_long, everywhere),
    (long_functions, everywhere),
    (banned_classes, everywhere),
    (missing_docstring, everywhere),
    (misplaced_docstrings, everywhere),
    (vague_first_lines, in_source),
    (undocumented, in_written_source),
    (long_test_names, in_tests),
    (participle_classes, in_source_outside_errors),
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
def survey_python():
    """Return the complaints by rule, and the imports and classes of src, from one pass."""
    found = {rule: [] for rule, _ in PYTHON_RULES}
    imports, classes = {}, []
    for path in tree.python_files():
        name = tree.short(path)
        source = path.read_text(encoding="utf-8", errors="replace")
        module = ast.parse(source)
        for rule, applies in PYTHON_RULES:
            if applies(name):
                found[rule] += [f"{name}:{line}: {text}" for line, text in rule(source, module)]
        if in_source(name):
            imports[path] = imported_names(module)
            defined = (node.name for node in nodes(module) if isinstance(node, ast.ClassDef))
            classes += [(path, class_name) for class_name in defined]
    return found, imports, classes


@pytest.mark.parametrize("rule", dict(PYTHON_RULES), ids=lambda rule: rule.__name__)
def test_every_python_file_is_tidy(rule):
    assert not survey_python()[0][rule]


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_no_text_file_leaks_where_it_was_written(rule):
    assert not complaints(rule, tree.text_files())


def test_the_documentation_is_in_plain_words():
    pages = [*tree.pages(), *(path for path in tree.files() if "examples" in path.parts)]
    assert not complaints(banned_words, pages)


def test_the_tests_are_in_plain_words():
    listed = tree.ROOT / "tests" / "repository" / "test_tidy.py"
    paths = [path for path in tree.text_files() if tree.short(path).startswith("tests/")]
    assert not complaints(banned_names, [path for path in paths if path != listed])


def test_banned_words_in_the_source_only_become_fewer():
    counts = Counter()
    for path in tree.text_files():
        if in_source(tree.short(path)):
            source = PLACES.sub("", path.read_text(encoding="utf-8"))
            counts.update(word.lower() for word in BANNED.findall(source))
    risen = {word: n for word, n in counts.items() if n > SOURCE_WORDS_MAX.get(word, 0)}
    assert not risen, "lower the numbers in SOURCE_WORDS_MAX; none may rise"


def test_source_and_documentation_use_terms_instead_of_metaphors():
    sources = [path for path in tree.text_files() if in_source(tree.short(path))]
    # The changelog has the old names of what was renamed.
    pages = [page for page in tree.pages() if page.name != "CHANGELOG.md"]
    assert not complaints(metaphors, [*sources, *pages])
    current = [path for path in sources if "migrations" not in path.parts]
    assert not complaints(speaking, [*current, *pages])


def test_tiny_modules_with_one_importer_have_a_reason():
    source = tree.ROOT / "src"
    modules, imports = {}, {}
    for path, imported in survey_python()[1].items():
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = path.read_text(encoding="utf-8")
        imports[name] = imported
    packages = {name.rpartition(".")[0] for name in modules}
    tiny = set(tiny_modules(modules, imports)) - packages - {"fourfold.__main__"}
    assert not tiny - TINY_MODULES.keys(), "merge it into its importer"
    assert not TINY_MODULES.keys() - tiny, "no longer tiny, or shared: take it off the list"


def test_a_class_name_has_one_meaning():
    shared = shared_class_names(survey_python()[2])
    assert not shared - SHARED_CLASS_NAMES.keys(), "name what this one is"
    assert not SHARED_CLASS_NAMES.keys() - shared, "no longer shared: take them off the list"


def test_a_shared_class_name_is_found():
    assert shared_class_names([("a", "X"), ("b", "X"), ("a", "Y"), ("a", "Y")]) == {"X"}


def test_a_tiny_module_is_found_by_its_importer():
    long = "x = 1\n" * LINES_PER_MODULE_MIN
    small = {"p.a": "import q\nfrom p import b\n" + long, "p.b": "x = 1\n"}

    def tiny(sources):
        imports = {name: imported_names(ast.parse(text)) for name, text in sources.items()}
        return list(tiny_modules(sources, imports))

    assert tiny(small) == ["p.b"]
    assert not tiny(small | {"p.c": "from p.b import x\n" + long})
    assert not tiny(small | {"p.b": long})
    assert not tiny({"p": "from p.b import x\n" + long, "p.b": "x = 1\n"})


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
        (misplaced_docstrings, "X = 1\n'Of Y.'\n'Of X.'"),
        (vague_first_lines, "def f():\n    'What it is.'"),
        (vague_first_lines, "'Where a file is.'"),
        (undocumented, "class A:\n    'A thing.'\n    def f(self): pass"),
        (long_test_names, "def test" + "_a" * (TEST_NAME_WORDS_MAX + 1) + "(): pass"),
        (participle_classes, "class Reached(NamedTuple): pass"),
        (participle_classes, "class _Lost: pass"),
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
        (banned_names, "def test_no" + "body_waits(): pass"),
        (metaphors, "class ReadPatience: pass"),
        (speaking, "-- No row speaks of it."),
        (metaphors, "patience_s = 1"),
        (metaphors, "Rings the bells."),
    ],
)
def test_each_rule_finds_what_it_is_for(rule, bad):
    assert list(rule(bad, ast.parse(bad) if rule in dict(PYTHON_RULES) else None))


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (vague_first_lines, "def _f():\n    'Whatever.'"),
        (undocumented, "def _g(): pass"),
        (undocumented, "@overload\ndef f(): ..."),
        (long_test_names, "async def test" + "_a" * TEST_NAME_WORDS_MAX + "(): pass"),
        (participle_classes, "class Refused(FourfoldError): pass"),
        (participle_classes, "class Feed: pass"),
        (sql_literals, "x = 'Select a file'"),
        (sql_literals, "x = 'SELECTED'"),
        (machine_paths, "~/W and ./W/y and $HOME/W/z and frame/W/".replace("W", "work")),
        (registries, "https" + "://py" + "pi.org/project/fourfold"),
        (banned_words, "Run the server be" + "hind a proxy."),
        (metaphors, "year, Search, bellows, linear_seating"),
        (banned_names, "StreamSeqBe" + "hind has the kind stream_seq_be" + "hind"),
    ],
)
def test_no_rule_cries_wolf(rule, good):
    assert not list(rule(good, ast.parse(good) if rule in dict(PYTHON_RULES) else None))
