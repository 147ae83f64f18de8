"""Schema, routing key, search fields and profile set by the handle of a stream."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.errors import InvalidInput
from fourfold.models.streams import rule_changes
from fourfold.models.streams.profiles import GENERIC, EventLog, StateProtocol
from fourfold.models.streams.schemas.registry import RoutingKey, Search

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
RENAMED = {"type": "object", "properties": {"no": {"type": "integer"}}, "required": ["no"]}
CLOSED = {"additionalProperties": False}
RENAME = {"ops": [{"op": "rename", "from": "id", "to": "no"}]}


@pytest.fixture
def orders(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store.streams.create("orders", "application/json")


def test_stream_handle_sets_schema(orders):
    assert (orders.schema().current_version, orders.schema().schema) == (0, None)
    assert orders.set_schema({**ORDER, **CLOSED}).current_version == 1
    orders.append(b'{"id": 1}')
    with pytest.raises(InvalidInput, match="violates version 1"):
        orders.append(b"{}")
    assert orders.set_schema({**RENAMED, **CLOSED}, lens=RENAME) == orders.schema()
    assert orders.schema().current_version == 2
    assert [json.loads(each.payload) for each in orders.read().records] == [{"no": 1}]


def test_omitted_settings_stay_and_none_removes(orders):
    place = RoutingKey("/by", required=True)
    orders.set_schema(routing_key=place, search=["by"])
    assert orders.set_schema(ORDER).routing_key == place
    assert orders.set_schema(routing_key="/by").routing_key == RoutingKey("/by")
    assert (orders.schema().search, orders.schema().schema) == (Search(["by"]), ORDER)
    gone = orders.set_schema(routing_key=None, search=None)
    assert (gone.routing_key, gone.search, gone.schema) == (None, None, ORDER)
    with pytest.raises(InvalidInput, match="no change of the registry"):
        orders.set_schema()


def test_stream_handle_sets_profile(orders):
    assert orders.profile() == GENERIC
    profile = orders.set_profile("evlog", redact=["iban"], routing_key=("user",))
    assert profile == orders.profile() == EventLog(redact=("iban",), routing_key=("user",))
    assert orders.set_profile("state-protocol", touch=True) == StateProtocol(touch=True)
    assert orders.set_profile("state-protocol") == orders.profile() == StateProtocol(touch=False)


def test_schema_may_be_any_json_value():
    assert rule_changes.registry_change(False) == {"schema": False}
    assert rule_changes.registry_change(None) == {"schema": None}
    assert rule_changes.registry_change() == {}


@pytest.mark.parametrize("what", ["search", "redact", "routing_key"])
def test_text_is_rejected_as_list_of_names(what):
    build = rule_changes.registry_change if what == "search" else rule_changes.profile
    arguments = () if what == "search" else ("evlog",)
    with pytest.raises(InvalidInput, match=f"{what} must be a list of names"):
        build(*arguments, **{what: "iban"})
