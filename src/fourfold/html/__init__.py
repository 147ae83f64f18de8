"""HTML fragments for notebooks: escaped, without scripts, styles or dependencies.

    fragment(table(["id", "seq"], rows), caption="Entities")

Every function escapes the text that it receives and returns an `Html`, which the other functions
insert as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

ROWS_MAX: Final = 50
"""Rows of a table; more are counted, not shown."""
TEXT_MAX: Final = 4_000
"""Characters of one value; the rest is counted, not shown."""


def escape(text: str) -> str:
    """Return a text with the characters that HTML gives a meaning replaced, also quotes."""
    # Servers import this package, and rarely call it: the module has a table of 2,200 entities.
    from html import escape as escape_text  # noqa: PLC0415

    return escape_text(text)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def text(value: object) -> Html:
    """Return a value as escaped text, shortened to `TEXT_MAX` characters."""
    if isinstance(value, Html):
        return value
    return Html(escape(_shorten("" if value is None else str(value))))


def code(value: object) -> Html:
    """Return a value as inline code."""
    return Html(f"<code>{text(value)}</code>")


def block(value: Any) -> Html:
    """Return a JSON value as a block of indented code; bytes as their UTF-8 text."""
    if isinstance(value, bytes):
        shown = value.decode("utf-8", "replace")
    else:
        shown = json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    return Html(f"<pre><code>{escape(_shorten(shown))}</code></pre>")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table of at most `ROWS_MAX` rows, with a note if there are more."""
    head = "".join(f"<th scope='col'>{text(column)}</th>" for column in columns)
    body, count = [], 0
    for row in rows:
        count += 1
        if count <= ROWS_MAX:
            cells = "".join(f"<td style='text-align:left'>{text(cell)}</td>" for cell in row)
            body.append(f"<tr>{cells}</tr>")
    more = f"<p>{count - ROWS_MAX:,} more rows</p>" if count > ROWS_MAX else ""
    return Html(
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"
    )


def facts(values: Mapping[str, object]) -> Html:
    """Return names and values as a table with two columns."""
    rows = "".join(
        f"<tr><th scope='row' style='text-align:left'>{text(name)}</th>"
        f"<td style='text-align:left'>{text(value)}</td></tr>"
        for name, value in values.items()
    )
    return Html(f"<table><tbody>{rows}</tbody></table>")


def fragment(*parts: Html, caption: object = "") -> Html:
    """Return parts as one fragment with a caption."""
    title = f"<p><strong>{text(caption)}</strong></p>" if caption else ""
    return Html(f"<div>{title}{''.join(parts)}</div>")


def _shorten(shown: str) -> str:
    if len(shown) <= TEXT_MAX:
        return shown
    return f"{shown[:TEXT_MAX]}… ({len(shown) - TEXT_MAX:,} more characters)"
