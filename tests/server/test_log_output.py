"""The log of a server: text or JSON lines, and what the kernel writes to it."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
from served_streams import Served

import fourfold
from fourfold.errors import FourfoldError
from fourfold.kernel import Database, Migration, Options
from fourfold.server.log_output import logging_to
from fourfold.settings import LogSettings
from support.faulty_disk import FaultyDisk

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FIRST = Migration(1, "first", "CREATE TABLE first (n INTEGER)")
SECOND = Migration(2, "second", "CREATE TABLE second (n INTEGER)")


@pytest.fixture
def lines():
    """Return a function that logs to JSON while it runs an action, and returns the lines."""

    def run(action, level="info"):
        output = io.StringIO()
        with logging_to(LogSettings(format="json", level=level), output):
            action()
        return [json.loads(line) for line in output.getvalue().splitlines()]

    return run


def test_text_has_time_level_and_logger():
    output = io.StringIO()
    with logging_to(LogSettings(), output):
        logging.getLogger("fourfold.server").info("Key %s created", "a1")
        logging.getLogger("fourfold.server").debug("hidden")
    assert re.fullmatch(rf"{TIME} INFO fourfold\.server: Key a1 created\n", output.getvalue())


def test_json_has_fields_and_traceback_on_one_line(lines):
    def act():
        try:
            int("two\nlines")
        except ValueError:
            fields = {"path": "/v1/x", "ms": 3}
            logging.getLogger("fourfold.server").exception("failed", extra={"fields": fields})

    (line,) = lines(act)
    assert re.fullmatch(TIME, line["time"])
    assert (line["level"], line["logger"]) == ("error", "fourfold.server")
    assert (line["message"], line["path"], line["ms"]) == ("failed", "/v1/x", 3)
    assert "ValueError: invalid literal" in line["traceback"]


def test_log_is_as_before_after_the_block():
    logger = logging.getLogger("fourfold")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with logging_to(LogSettings(level="error"), io.StringIO()):
        assert logger.level == logging.ERROR
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_migrations_of_existing_databases_are_logged_by_name(tmp_path, lines):
    path = tmp_path / "one.sqlite"
    assert lines(lambda: Database.open(path, migrations=(FIRST,)).close()) == []
    (line,) = lines(lambda: Database.open(path, migrations=(FIRST, SECOND)).close())
    assert (line["level"], line["migration"]) == ("info", "second")
    assert line["database"].endswith("one.sqlite")


@pytest.mark.parametrize(
    ("how", "kind"), [("full", "disk_full"), ("io", "commit_uncertain")], ids=["full", "error"]
)
def test_failed_transaction_is_logged_by_name(tmp_path, lines, how, kind):
    with (
        FaultyDisk() as disk,
        Database.open(tmp_path / "one.sqlite", migrations=(FIRST,), vfs=disk.name) as database,
    ):

        def write():
            database.transact(lambda txn: txn.execute("INSERT INTO first VALUES (42)"))

        def fail():
            disk.fail("write", "-wal", how=how)
            with pytest.raises(FourfoldError):
                write()
            disk.repair()

        assert lines(write) == []
        logged = lines(fail)
    assert {(line["level"], line["kind"]) for line in logged} == {("error", kind)}
    for line in logged:
        assert line["database"].endswith("one.sqlite")
        assert line["message"].startswith("failed transaction: ")


def test_slow_transaction_is_logged_with_its_time(tmp_path, lines):
    options = Options(slow_transaction_ms=0.0)
    with Database.open(tmp_path / "one.sqlite", migrations=(FIRST,), options=options) as database:
        (line,) = lines(lambda: database.transact(lambda txn: txn.execute("SELECT 1")))
    assert line["level"] == "warning"
    assert line["database"].endswith("one.sqlite")
    assert line["ms"] >= 0


def test_serve_writes_lines_of_its_format_and_level(tmp_path):
    environment = {"FOURFOLD_LOG_FORMAT": "json", "FOURFOLD_SERVER_SLOW_REQUEST_MS": "0"}
    served = Served(tmp_path / "store", environment=environment)
    served.ask("GET", "/livez")
    lines = (line for line in served.process.stdout if line.startswith(b"{"))
    line = next(line for line in map(json.loads, lines) if line["operation"] == "livez")
    served.kill()
    assert (line["level"], line["status"]) == ("warning", 200)


def test_store_installs_no_handlers(tmp_path):
    with fourfold.open(tmp_path / "store"):
        assert logging.getLogger("fourfold").handlers == []
