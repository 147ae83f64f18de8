"""The tables that a query names, and calls of tables at a point."""

from __future__ import annotations

import pytest

from fourfold.errors import InvalidInput
from fourfold.pipeline.query_tables import find_uses


def uses_of(query, **options):
    text, uses = find_uses(query, options.get("model", "documents"), options)
    return text, [(use.model, use.names, dict(use.options)) for use in uses]


def test_short_and_qualified_names_of_one_model_share_a_cut():
    query = "select 1 from state join documents_state join Sessions_Turns join nothing_state"
    assert uses_of(query) == (
        query,
        [
            ("documents", ["state", "documents_state"], {}),
            ("sessions", ["sessions_turns"], {}),
        ],
    )
    assert uses_of("from turns", model="sessions")[1] == [("sessions", ["turns"], {})]
    assert uses_of("from shop_state, state", prefix="shop_")[1] == [
        ("documents", ["shop_state"], {})
    ]
    assert uses_of("select 1")[1] == []


def test_calls_become_views_at_their_points():
    query = """select 'state_at(3)', "history_at(1)", 'it''s \\' state_at(7)' -- state_at(8)
        from state_at(4) a join documents_state_at( '2026-01-01T00:00:00Z' , 'draft') b
        /* state_at(9) */ join STATE_AT(4) c join other_at(5) join sessions_view_at(6)"""
    text, uses = uses_of(query)
    for kept in ("'state_at(3)'", '"history_at(1)"', "state_at(7)", "state_at(8)", "other_at(5)"):
        assert kept in text
    assert text.count("fourfold_at_1_state") == 2
    assert uses == [
        ("documents", ["fourfold_at_1_state"], {"at": 4}),
        (
            "documents",
            ["fourfold_at_2_state"],
            {"at": "2026-01-01T00:00:00Z", "branch": "draft"},
        ),
        ("sessions", ["fourfold_at_3_view"], {"at": 6}),
    ]
    with pytest.raises(InvalidInput, match="no branches"):
        uses_of("from commits_at(4, 'draft')")


def test_seq_for_tables_of_several_models_is_refused():
    for at in (4, "4"):
        with pytest.raises(InvalidInput, match="at must be a time"):
            uses_of("from documents_state, sessions_turns", at=at)
    assert len(uses_of("from documents_state, sessions_turns", at="2026-01-01")[1]) == 2
    assert len(uses_of("from documents_state, sessions_turns_at(3)", at=4)[1]) == 2
