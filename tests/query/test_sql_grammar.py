"""Random statements of a grammar: untrusted SQL reads what its key may read, and nothing else."""

from __future__ import annotations

import random

import pytest

import fourfold
from fourfold.errors import DeadlineExceeded, FourfoldError
from fourfold.kernel.query_connection import FUNCTIONS
from fourfold.query.engine import QueryOptions, all_tables, readable_tables, run_query

SECRET = "zq8secret"
PREFIXES = {
    "documents": ("did:web:open",),
    "streams": ("open/",),
    "sessions": ("open/",),
    "graphs": ("open",),
}
FORBIDDEN_TABLES = (
    *("sqlite_schema", "sqlite_temp_schema", "main.sqlite_schema", "temp.sqlite_schema", "dbstat"),
    *("pragma_table_list", "pragma_database_list", "pragma_function_list", '"commit"', "revision"),
    *("head", "wal_log", "producer_state_log", "stream_names", "kernel_meta", "events", "heads"),
    *("payloads", "app_1_parents", "value", "bytecode", "sqlite_stmt", "fts5vocab", "carray"),
)
FORBIDDEN_FUNCTIONS = (
    *("load_extension", "readfile", "writefile", "zeroblob", "randomblob", "fts5", "bm25"),
    *("sqlite_compileoption_get", "sqlite_source_id", "last_insert_rowid", "vec_distance_cosine"),
)
ARITIES = {
    1: ("length", "lower", "hex", "typeof", "json_valid", "quote", "count", "max", "total", "abs"),
    2: ("coalesce", "instr", "substr", "nullif", "min", "printf"),
    3: ("replace", "iif"),
}
FORBIDDEN_STATEMENTS = (
    "attach 'x.sqlite' as x",
    "pragma database_list",
    "create temp table {name} as {select}",
    "create temp trigger t after insert on {name} begin select 1; end",
    "insert into {name} {select}",
    "update {name} set {column} = 1",
    "delete from {name}",
    "drop view {name}",
    "vacuum into 'copy.db'",
    "explain {select}",
    "{select}; {select}",
    "begin; {select}",
)


class Grammar:
    """Statements with nested queries, most of which SQLite can prepare."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tables = {
            f"{model}_{table.name}": [column.name for column in table.columns]
            for model, tables in all_tables().items()
            for table in (
                readable_tables(tables, PREFIXES) if self.chance(0.9) else tables.public()
            )
        }
        self.folded = {
            f"{model}_{table.name}"
            for model, tables in all_tables().items()
            for table in tables.public()
            if table.folded and "branch" in table.options
        }

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, share):
        return self.random.random() < share

    def statement(self):
        self.forbidden = []
        select = self.select(3)
        # An expression that `*` replaced is not in the query.
        self.forbidden = [name for name in self.forbidden if name in select]
        if self.chance(0.1):
            self.forbidden.append("a statement")
            return self.pick(*FORBIDDEN_STATEMENTS).format(
                name=self.pick(*self.tables), column="seq", select=select
            )
        return select

    def select(self, depth, width=None):
        heads = []
        width = width or self.pick(1, 1, 2, 3)
        sources, columns = self.sources(depth, heads)
        parts = [
            "select" + self.pick("", "", " distinct"),
            ", ".join(self.expression(columns, depth - 1) for _ in range(width)),
            f"from {sources}",
        ]
        if depth == 3 and self.chance(0.1):
            parts[1] = "*"
        if self.chance(0.5):
            parts.append(f"where {self.condition(columns, depth - 1)}")
        if self.chance(0.2):
            parts.append(f"group by {self.column(columns)}")
            if self.chance(0.5):
                parts.append(f"having {self.condition(columns, 0)}")
        if depth > 1 and self.chance(0.15):
            union = self.pick("union", "union all", "except", "intersect")
            parts.append(f"{union} {self.select(0, width)}")
        elif self.chance(0.3):
            parts.append(f"order by {self.pick('1', self.column(columns))}")
        if self.chance(0.3):
            parts.append(f"limit {self.pick(1, 3, 100)}")
        return (f"with {', '.join(heads)} " if heads else "") + " ".join(parts)

    def sources(self, depth, heads):
        """Return the text of FROM, and the columns that it gives."""
        texts, columns = [], []
        for number in range(self.pick(1, 1, 1, 2)):
            alias = f"t{depth}{number}"
            kind = self.random.random()
            if kind < 0.03:
                name = self.pick(*FORBIDDEN_TABLES)
                self.forbidden.append(name)
                texts.append(f"{name} as {alias}")
                columns += [f"{alias}.{name}" for name in ("rowid", "name", "sql", "data", "value")]
            elif kind < 0.16 and depth > 0:
                texts.append(f"({self.select(depth - 1)}) as {alias}")
                columns.append("1")
            elif kind < 0.3 and depth > 0:
                # A name like that of a published or stored table hides nothing from the check.
                name = self.pick(f"c{depth}{number}", *self.tables, "wal_log", "head")
                heads.append(f"{name}(x) as {self.pick('', 'materialized ')}({self.select(0, 1)})")
                texts.append(f"{name} as {alias}")
                columns.append(f"{alias}.x")
            else:
                name = self.pick(*self.tables)
                call = self.pick("", "", "('*')", "('')", f"('{SECRET}')")
                if name not in self.folded:
                    call = ""
                texts.append(f"{name}{call} as {alias}")
                columns += [f"{alias}.{column}" for column in self.tables[name]]
        join = self.pick(", ", " cross join ", " left join ")
        text = join.join(texts)
        if join == " left join " and len(texts) > 1:
            text += f" on {self.condition(columns, 0)}"
        return text, columns

    def column(self, columns):
        return self.pick(*columns)

    def literal(self):
        return self.pick("1", "0", "null", "'x'", "x'00'", "2.5", f"'%{SECRET[:4]}%'", "'$.title'")

    def expression(self, columns, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.45:
            return self.column(columns) if self.chance(0.8) else self.literal()
        if kind < 0.48:
            name = self.pick(*FORBIDDEN_FUNCTIONS)
            self.forbidden.append(name)
            return f"{name}({self.expression(columns, 0)})"
        if kind < 0.75:
            if self.chance(0.2):
                name, count = self.pick(*sorted(FUNCTIONS - {"->", "->>"})), self.pick(0, 1, 2, 3)
            else:
                count = self.pick(*ARITIES)
                name = self.pick(*ARITIES[count])
            arguments = [self.expression(columns, depth - 1) for _ in range(count)]
            return f"{name}({', '.join(arguments)})"
        if kind < 0.85:
            return f"({self.select(0, 1)})" if self.chance(0.3) else "(select 1)"
        operator = self.pick("+", "||", "=", "is", "like", "and", "or")
        left, right = (self.expression(columns, depth - 1) for _ in range(2))
        return f"({left} {operator} {right})"

    def condition(self, columns, depth):
        if self.chance(0.2):
            return f"exists ({self.select(0)})"
        left, right = (self.expression(columns, depth) for _ in range(2))
        return f"{left} {self.pick('=', '<', 'is not', 'like', 'in')} ({right})"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store in which everything outside of the prefixes contains a secret."""
    folder = tmp_path_factory.mktemp("grammar") / "store"
    with fourfold.open(folder) as store:
        for place in ("open", SECRET):
            text = "public" if place == "open" else SECRET
            for number, history in enumerate(("revisions", "facts")):
                space = store.space(f"did:web:{place}{number}.example", history)
                space.set("n", {"title": text})
                space.patch("n", [{"op": "add", "path": "/more", "value": text}])
                space.blobs.put(text.encode(), "text/plain")
            stream = store.streams.create(f"{place}/s", "application/json")
            stream.append([{"type": "t", "key": "k", "value": text}])
            store.sessions.create({"id": f"{place}/1"})
            message = {"role": "user", "content": text}
            event = {"type": "message/appended", "message": message}
            store.sessions.append_event(f"{place}/1", event)
            app = store.graphs.create(place, text)
            note = app.register_type("parent", text)
            app.insert("parent", [{"type_id": note, "owner_identity": 1}])
    return folder


def contents(root):
    return {
        path: path.read_bytes() for path in root.rglob("*") if path.suffix in {".sqlite", ".db"}
    }


def run_statements(root, seed, count):
    """Run random statements; return how many gave a result."""
    grammar = Grammar(seed)
    options = QueryOptions(prefixes=PREFIXES, remote=True, timeout_s=2, max_rows=200)
    results, messages = 0, []
    for _ in range(count):
        query = grammar.statement()
        try:
            result = run_query(root, query, (), options)
        except DeadlineExceeded:
            continue
        except FourfoldError as error:
            messages.append(error.message)
            continue
        results += 1
        # Common table expressions may have such a name.
        assert all(f"{name}(x) as" in query for name in grammar.forbidden), query
        assert len(result) <= 200, query
        for value in (value for row in result for value in row):
            shown = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            # A query may contain the secret itself, but only the beginning of it in a pattern.
            assert SECRET not in shown or f"'{SECRET}'" in query, query
            assert str(root) not in shown, query
    assert str(root) not in "".join(messages)
    return results


@pytest.mark.parametrize("seed", range(4))
def test_random_statements_read_only_what_the_key_may_read(root, seed):
    before = contents(root)
    assert len(before) >= 5
    results = run_statements(root, seed, 150)
    # Otherwise the grammar would test the parser of SQLite.
    assert results >= 50, results
    assert contents(root) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_statements_read_only_what_the_key_may_read(root, seed):
    before = contents(root)
    assert run_statements(root, seed, 2_000) >= 400
    assert contents(root) == before


def test_secret_is_found_without_prefixes(root):
    """The store has what the other tests must not see."""
    for model, tables in all_tables().items():
        texts = [
            str(run_query(root, f"select * from {model}_{table.name}").rows)
            for table in tables.public()
        ]
        assert SECRET in "".join(texts), model
