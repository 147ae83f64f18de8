"""Claims about `fourfold space gc`: what it takes, what it only promises, and what it refuses."""

from __future__ import annotations

import json

import pytest
from space_calls import DID, get


@pytest.fixture
def long(on):
    """A space with a history of eight seqs."""
    for number in range(8):
        on("set", "note", json.dumps({"n": number, "text": "x" * 300}))
    return on


@pytest.fixture
def fails(run):
    """Run a command on that space which must not succeed."""

    def call(name, *arguments):
        done = run(*name.split(), "shop", DID, *arguments)
        assert done.code != 0
        return done

    return call


def test_without_a_policy_nothing_is_given_up(long, fails):
    done = fails("gc", "--json")
    assert (done.code, done.error["kind"]) == (6, "refused")
    assert "--keep" in done.error["hint"]
    assert get(long, "note", "--at", "1")["n"] == 0


def test_a_dry_run_promises_and_changes_nothing(long):
    promised = long("gc", "--keep", "3", "--dry-run", "--json").document["collected"]
    assert (promised["horizon"], promised["dry_run"]) == (6, True)
    assert promised["revisions"]["count"] == 5
    assert get(long, "note", "--at", "1")["n"] == 0
    assert "would delete: 5 revisions" in long("gc", "--keep", "3", "--dry-run").out
    done = long("gc", "--keep", "3", "--json").document["collected"]
    assert done == {**promised, "dry_run": False}


def test_reads_below_the_horizon_are_refused_with_their_own_kind(long, fails):
    assert "every state from seq 6 on stays readable" in long("gc", "--keep", "3").out
    assert get(long, "note", "--at", "6")["n"] == 5
    for arguments in (
        ["get", "note", "--at", "5"],
        ["ids", "--at", "5"],
        ["history", "note"],
        ["diff", "--at", "5"],
        ["revert", "--at", "5"],
        ["branch create", "f", "--at", "5"],
        ["export", "--output", "file"],
        ["carry", "did:web:other.example"],
    ):
        done = fails(*arguments, "--json")
        assert (done.code, done.error["kind"]) == (6, "history_truncated"), arguments
        assert done.error["details"]["horizon"] == 6
    assert long("verify").code == 0


def test_pins_stay_and_ages_count_from_now(long):
    long("gc", "--keep", "1", "--pin", "2", "--pin", "4")
    assert [get(long, "note", "--at", seq)["n"] for seq in ("2", "4", "8")] == [1, 3, 7]
    assert long("gc", "--keep", "2w", "--keep", "1", "--json").document["collected"]["horizon"] == 8


def test_a_policy_is_kept_followed_by_maintenance_and_forgotten(long, fails):
    saved = long("gc", "--keep", "4", "--snapshots", "log", "--save", "--json").document
    assert (saved["policy"]["keep_seqs"], saved["policy"]["snapshots"]) == (4, "log")
    long("set", "note", "{}")
    assert long("maintain", "--json").document["collected"]["horizon"] == 6
    assert long("gc", "--json").document["collected"]["horizon"] == 6
    assert long("gc", "--off", "--json").document == {"did": DID, "policy": None, "collected": None}
    assert fails("gc").code == 6
    assert long("maintain", "--json").document["collected"] is None


@pytest.mark.parametrize(
    "options",
    [
        ["--keep", "0"],
        ["--keep", "soon"],
        ["--keep", "3", "--keep", "4"],
        ["--keep", "1d", "--keep", "2d"],
        ["--keep", "3", "--pin", "99"],
        ["--keep", "3", "--snapshots", "some"],
        ["--keep", "3", "--blob-age", "old"],
        ["--keep", "3", "--off"],
        ["--save"],
        ["--keep", "3", "--save", "--dry-run"],
    ],
)
def test_options_that_make_no_sense_are_refused_and_nothing_goes(long, fails, options):
    assert fails("gc", *options).code == 2
    assert get(long, "note", "--at", "1")["n"] == 0


def test_blobs_go_when_asked_for(on, tmp_path):
    (tmp_path / "bytes").write_bytes(b"bytes")
    on("blob put", "bytes")
    on("set", "note", "{}")
    assert on("gc", "--keep", "1", "--json").document["collected"]["blobs"]["count"] == 0
    assert "1 blob" in on("gc", "--keep", "1", "--blobs", "--blob-age", "0s").out
