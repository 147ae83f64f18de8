"""The error tree: as drawn, as pinned, and as it survives a process border."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from pathlib import Path

import pytest

from fourfold import errors

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import generate

CLASSES = [cls for cls in errors.tree() if cls.__module__ == "fourfold.errors"]

# Programs match on these codes. A line may be added here; none may be changed or removed.
KINDS = {
    "error": 1,
    "invalid_input": 2,
    "invalid_config": 2,
    "content": 2,
    "too_large": 2,
    "unsupported_encoding": 2,
    "webhook_refused": 2,
    "not_found": 3,
    "stream_gone": 3,
    "offset_gone": 3,
    "stream_recreated": 3,
    "payload_missing": 3,
    "conflict": 4,
    "already_exists": 4,
    "precondition_failed": 4,
    "head_moved": 4,
    "content_type_mismatch": 4,
    "stream_seq_behind": 4,
    "producer_gap": 4,
    "wake_fenced": 4,
    "already_claimed": 4,
    "lease_lost": 4,
    "nothing_pending": 4,
    "ack_refused": 4,
    "stale_read": 4,
    "replay_mismatch": 4,
    "merge_conflicted": 4,
    "unique_violation": 4,
    "busy": 5,
    "overloaded": 5,
    "quota_exceeded": 5,
    "deadline_exceeded": 5,
    "lock_timeout": 5,
    "refused": 6,
    "writer_locked": 6,
    "read_only": 6,
    "closed": 6,
    "sequence_regression": 6,
    "limit_exceeded": 6,
    "package_refused": 6,
    "package_tampered": 6,
    "package_replayed": 6,
    "package_gap": 6,
    "package_overlaps": 6,
    "package_regresses": 6,
    "unauthorized": 6,
    "forbidden": 6,
    "host_refused": 6,
    "stream_closed": 6,
    "producer_fenced": 6,
    "publisher_fenced": 6,
    "branch_ended": 6,
    "history_truncated": 6,
    "capability_denied": 6,
    "rule_broken": 6,
    "format": 7,
    "future_format": 7,
    "migration_failed": 7,
    "foreign_file": 7,
    "corrupt_data": 8,
    "sequence_corrupt": 8,
    "storage": 9,
    "disk_full": 9,
    "commit_uncertain": 9,
    "object_store": 9,
    "object_store_denied": 9,
    "server_unreachable": 9,
    "outcome_unknown": 9,
    "bad_answer": 9,
    "call_failed": 1,
    "missing_dependency": 10,
}
BUILT_IN = {"ValueError": ValueError, "KeyError": KeyError, "ImportError": ImportError}


def drawn():
    """(name, parent, built-in bases) of each line of the drawing, top to bottom."""
    found, line_of_depth = [], {}
    drawing = re.compile(r"^ {4}((?:[│ ] {3})*(?:[├└]── )?)([A-Z]\w+)(?: \((\w+)\))?(?: |$)")
    for line in errors.__doc__.splitlines():
        if match := drawing.match(line):
            branch, name, base = match.groups()
            depth = len(branch) // 4
            line_of_depth[depth] = name
            found.append((name, line_of_depth.get(depth - 1), base))
    return found


def defined():
    rows = []
    for cls in CLASSES:
        parents = [
            base.__name__ for base in cls.__bases__ if issubclass(base, errors.FourfoldError)
        ]
        builtin = [base.__name__ for base in cls.__bases__ if base.__name__ in BUILT_IN]
        rows.append((cls.__name__, next(iter(parents), None), next(iter(builtin), None)))
    return rows


def test_the_drawing_in_the_docstring_is_the_tree():
    assert len(drawn()) > 1
    assert drawn() == defined()


def test_every_line_of_the_drawing_says_what_to_do_next():
    for line in errors.__doc__.splitlines():
        if "── " in line:
            assert re.search(r"[\w)] {2,}\S|\) \S", line), line


def test_kinds_are_unique():
    kinds = [cls.kind for cls in CLASSES]
    assert len(set(kinds)) == len(kinds)


def test_kinds_and_exit_codes_are_only_ever_added():
    now = {cls.kind: cls.exit_code for cls in CLASSES}
    assert now.items() >= KINDS.items(), "a released kind or its exit code changed"
    assert now.keys() == KINDS.keys(), "add the new kind to KINDS: from now on it is pinned"


def test_every_class_has_kind_and_hint_of_its_own():
    for cls in CLASSES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.__dict__["kind"]), cls
        assert cls.__dict__["default_hint"].endswith("."), cls
        assert cls("x").hint == cls.default_hint, cls
        assert isinstance(cls.retryable, bool), cls


def test_the_exit_code_follows_the_branch():
    for cls in CLASSES:
        branch = next((c for c in cls.__mro__ if c.__base__ is errors.FourfoldError), cls)
        assert cls.exit_code == branch.exit_code, cls
        assert 1 <= cls.exit_code < 64, cls


@pytest.mark.parametrize(
    "carry", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy]
)
def test_an_error_survives_a_process_border_whole(carry):
    for cls in CLASSES:
        error = cls("the thing", hint="do this", retry_after=0.5)
        carried = carry(error)
        assert type(carried) is cls
        assert carried.as_dict() == error.as_dict(), cls
        fields = (str(carried), carried.hint, carried.retry_after)
        assert fields == ("the thing", "do this", 0.5), cls


def test_the_message_is_printed_plainly_even_by_a_key_error():
    assert str(errors.NotFound("no stream named 'a'")) == "no stream named 'a'"


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.InvalidInput, ValueError),
        (errors.NotFound, KeyError),
        (errors.MissingDependency, ImportError),
    ],
)
def test_errors_are_subclasses_of_their_builtin_counterparts(cls, builtin):
    with pytest.raises(builtin):
        raise cls("x")


def test_the_dictionary_form_is_the_one_that_clients_parse():
    assert errors.Overloaded("full", retry_after=0.1).as_dict() == {
        "kind": "overloaded",
        "message": "full",
        "hint": errors.Overloaded.default_hint,
        "retryable": True,
        "retry_after": 0.1,
    }
    assert "retry_after" not in errors.Busy("x").as_dict()


def test_the_page_of_errors_is_generated_from_the_classes():
    page = generate.ERRORS.read_text(encoding="utf-8")
    assert generate.with_errors(page) == page, "run: python docs/generate.py"


def test_every_error_has_a_docstring_of_its_own():
    assert not [cls for cls in CLASSES if not cls.__dict__.get("__doc__")]
