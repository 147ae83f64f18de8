"""The limits that spaces are measured against leave the same rows as a space does."""

from __future__ import annotations

import json
import shutil

import pytest
from bench.documents import dataset, limit, spaces, subject
from bench.documents.task import LIMITED, Task

PAGE = 4096
COUNTS = {"bulk-set": 2_000, "bulk-patch": 22}


@pytest.mark.parametrize("history", ["facts", "revisions"])
@pytest.mark.parametrize("form", LIMITED)
def test_a_limit_inserts_the_rows_that_a_space_has_written(tmp_path, form, history):
    start, ours, theirs = (tmp_path / f"{name}.sqlite" for name in ("start", "ours", "theirs"))
    count = COUNTS.get(form, 30)
    if form == "bulk-patch":
        spaces.make_many(start, history, PAGE, count)
    else:
        spaces.make_written(start, history, PAGE)
    shutil.copyfile(start, ours)
    shutil.copyfile(start, theirs)
    before = spaces.fingerprint(start, history, PAGE)

    job = subject.FORMS[form](Task(form, history, PAGE, str(ours), count))
    job.run()
    job.after()
    made = limit.kernel_bulk if form.startswith("bulk") else limit.bare
    job = made(Task(form, history, PAGE, str(theirs), count, str(ours)))
    job.run()
    job.after()

    assert spaces.fingerprint(ours, history, PAGE) != before
    assert spaces.fingerprint(theirs, history, PAGE) == spaces.fingerprint(ours, history, PAGE)
    with spaces.opened(theirs, history, PAGE) as space:
        assert space.verify() == []


@pytest.mark.parametrize("history", ["facts", "revisions"])
def test_the_pairs_are_the_newest_documents(tmp_path, history):
    many, pairs = tmp_path / "many.sqlite", tmp_path / "pairs.sqlite"
    spaces.make_many(many, history, PAGE, 22)
    spaces.make_key_values(pairs, many, history, PAGE, 22)
    connection = spaces.bare_connection(pairs, history, PAGE, readonly=True)
    try:
        texts = [
            connection.execute(spaces.SQL.key_value_get, (dataset.entity(number),)).get
            for number in range(22)
        ]
    finally:
        connection.close()
    with spaces.opened(many, history, PAGE, "r") as space:
        for number, text in enumerate(texts):
            state = space.read(dataset.entity(number))
            assert json.loads(text) == state.document
            assert (state.op == "set") == (number % dataset.DEPTHS == 0)
