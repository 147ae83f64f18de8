"""Usage of the turns of a session, such as tokens and cost, as events record it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

COLUMNS_MAX: Final = 6
_LABELS: Final = {
    "input_tokens": "In",
    "prompt_tokens": "In",
    "cached_tokens": "Cached",
    "cache_read_tokens": "Cached",
    "output_tokens": "Out",
    "completion_tokens": "Out",
    "reasoning_tokens": "Reasoning",
    "tokens": "Tokens",
    "total_tokens": "Tokens",
    "cost": "Cost",
    "cost_usd": "Cost, $",
}
"""Names that programs use, in the order of the columns; others follow under their own names."""
_ADDED: Final = ("input_tokens", "prompt_tokens", "output_tokens", "completion_tokens")
"""Names whose sum is the number of tokens; cached tokens are a part of the input."""


def usage_table(turns: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the usage of some turns as columns and rows, with a total.

    Args:
        turns: Turns as the session stores them; their `usage` is an amount by name.
    """
    rows: list[dict[str, Any]] = [
        {"turn": turn.get("id"), "steps": turn.get("steps"), "usage": _amounts(turn.get("usage"))}
        for turn in turns
    ]
    names = {name for row in rows for name in row["usage"]}
    order = [name for name in _LABELS if name in names] + sorted(names - set(_LABELS))
    total = {name: sum(row["usage"].get(name, 0) for row in rows) for name in order}
    shown = order[:COLUMNS_MAX]
    return {
        "columns": [
            {
                "name": name,
                "label": _LABELS.get(name, name.replace("_", " ")),
                "digits": 4 if any(row["usage"].get(name, 0) % 1 for row in rows) else 0,
            }
            for name in shown
        ],
        "rows": rows if names else [],
        "total": {"steps": sum(row["steps"] or 0 for row in rows), "usage": total},
        "tokens": tokens_of(total),
        "cost": total.get("cost", total.get("cost_usd")),
    }


def _amounts(usage: Any) -> dict[str, float]:
    if not isinstance(usage, dict):
        return {}
    return {
        str(name): amount
        for name, amount in usage.items()
        if isinstance(amount, int | float) and not isinstance(amount, bool)
    }


def tokens_of(usage: dict[str, Any] | None) -> float | None:
    """Return the tokens of a usage; None if it has none."""
    usage = _amounts(usage)
    whole = usage.get("total_tokens", usage.get("tokens"))
    if whole is not None:
        return whole
    parts = [usage[name] for name in _ADDED if name in usage]
    return sum(parts) if parts else None


def amount(value: float | None, digits: int = 0) -> str:
    """Return an amount with separators and this many digits; empty for None."""
    return "" if value is None else f"{value:,.{digits}f}"
