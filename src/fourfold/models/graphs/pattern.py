"""Patterns: which objects, linked by which edges, with which values `match` looks for.

    Pattern()
        .node("a", type_key="person", where={"age": {"$gte": 18}})
        .edge("a", "b", "knows")
        .path("b", "c", "knows", hops=3)

As JSON, a pattern has the names of its objects and its steps:

    {"nodes": {"a": {"type": "person", "where": {"age": {"$gte": 18}}}},
     "steps": [{"from": "a", "to": "b", "type": "knows"},
               {"from": "b", "to": "c", "type": "knows", "hops": 3}]}

A step is one edge, or a shortest path of at most `hops` edges. An object without conditions need
not be among the nodes. Each object must be connected with the others by steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.content.filters import Filter
from fourfold.errors import InvalidInput
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import Direction
from fourfold.models.graphs.values import value_filter

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HINT: Final = (
    'A pattern is a JSON object such as {"nodes": {"a": {"type": "person"}}, '
    '"steps": [{"from": "a", "to": "b", "type": "knows"}]}.'
)


class PatternNode(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Conditions on one object of a pattern."""

    type: str | None = None
    """Key of its type."""
    id: int | None = None
    where: dict[str, Any] = {}
    """Conditions on its attributes by the keys of their types: a value, filter operators, or None
    for any value. One attribute of the type must meet each of them."""


class PatternStep(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "target": "to"},
):
    """An edge, or a shortest path, between two objects of a pattern."""

    source: str
    target: str
    type: str | tuple[str, ...] | None = None
    """Keys of the types of its edges; None for any."""
    direction: Direction = "out"
    """Follow edges "out" of `source`, "in" to it, or "both"."""
    hops: int = 1
    """Maximum number of edges of a shortest path; 1 for one edge."""

    @property
    def types(self) -> tuple[str, ...] | None:
        """Keys of the types of its edges, or None for any."""
        return (self.type,) if isinstance(self.type, str) else self.type


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern of objects and steps. It is immutable: each method returns a new one."""

    nodes: dict[str, PatternNode] = {}
    steps: tuple[PatternStep, ...] = ()

    def node(
        self,
        name: str,
        *,
        type_key: str | None = None,
        object_id: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Pattern:
        """Return the pattern with conditions on an object.

        Args:
            name: The name of the object in the pattern.
            type_key: The key of its type.
            object_id: Its id.
            where: Conditions on its attributes by the keys of their types.
        """
        node = PatternNode(type=type_key, id=object_id, where=dict(where or {}))
        return Pattern({**self.nodes, name: node}, self.steps)

    def edge(
        self,
        source: str,
        target: str,
        type_keys: str | Sequence[str] | None = None,
        *,
        direction: Direction = "out",
    ) -> Pattern:
        """Return the pattern with an edge between two objects, of one of the types."""
        return self.path(source, target, type_keys, direction=direction, hops=1)

    def path(
        self,
        source: str,
        target: str,
        type_keys: str | Sequence[str] | None = None,
        *,
        direction: Direction = "out",
        hops: int = limits.MATCH_HOPS_MAX,
    ) -> Pattern:
        """Return the pattern with a shortest path of at most `hops` edges between two objects."""
        types = type_keys
        if types is not None and not isinstance(types, str):
            types = tuple(types)
        step = PatternStep(source=source, target=target, type=types, direction=direction, hops=hops)
        return Pattern(self.nodes, (*self.steps, step))

    @classmethod
    def parse(cls, value: Pattern | Mapping[str, Any]) -> Pattern:
        """Return a checked pattern, also from its JSON form.

        Raises:
            InvalidInput: It is not a pattern; the message names what is wrong.
        """
        try:
            # A round trip through JSON also copies what the caller may change.
            text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
            pattern = msgspec.json.decode(text.encode(), type=cls)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"not a pattern: {error}", hint=_HINT) from None
        pattern.check()
        return pattern

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        return form

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the objects: the nodes, and others in the order of the steps."""
        ends = (name for step in self.steps for name in (step.source, step.target))
        return tuple(dict.fromkeys((*self.nodes, *ends)))

    def filters(self, name: str) -> dict[str, Filter]:
        """Return the conditions on the attributes of an object, by the keys of their types."""
        node = self.nodes.get(name)
        return (
            {} if node is None else {key: value_filter(where) for key, where in node.where.items()}
        )

    def check(self) -> None:
        """Raise InvalidInput if `match` refuses the pattern."""
        for name, node in self.nodes.items():
            _check_name(name)
            if node.type is not None:
                validation.check_text(node.type, f"type of {name}")
            if node.id is not None:
                validation.check_integer(node.id, f"id of {name}", least=1)
            for key in node.where:
                validation.check_text(key, f"where of {name}")
            self.filters(name)
        if len(self.steps) > limits.MATCH_STEPS_MAX:
            raise InvalidInput(
                f"a pattern has at most {limits.MATCH_STEPS_MAX} steps, got {len(self.steps)}"
            )
        for step in self.steps:
            _check_step(step)
        self._check_connected()

    def _check_connected(self) -> None:
        if not self.names:
            raise InvalidInput("a pattern must have an object", hint=_HINT)
        connected = {self.names[0]}
        for _ in self.steps:
            for step in self.steps:
                if {step.source, step.target} & connected:
                    connected |= {step.source, step.target}
        apart = [name for name in self.names if name not in connected]
        if apart:
            raise InvalidInput(
                f"{apart[0]!r} is not connected with {self.names[0]!r} by steps",
                hint="Match objects that are not connected with two calls.",
            )


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"a name in a pattern must be letters, digits and underscores, got {name!r:.80}"
        )


def _check_step(step: PatternStep) -> None:
    for name in (step.source, step.target):
        _check_name(name)
    for key in step.types or ():
        validation.check_text(key, "type of a step")
    if step.types == ():
        raise InvalidInput("type of a step must not be an empty list; leave it out for any type")
    if not 1 <= step.hops <= limits.MATCH_HOPS_MAX:
        raise InvalidInput(
            f"hops must be an integer from 1 to {limits.MATCH_HOPS_MAX}, got {step.hops}"
        )
    if step.hops > 1 and step.source == step.target:
        raise InvalidInput(f"the ends of a path must differ, got {step.source!r} twice")
