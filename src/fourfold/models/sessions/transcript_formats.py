"""Formats of a transcript: Markdown, HTML, and messages of OpenAI's chat completions.

Contents are hostile: every writer keeps them inside their entry. In Markdown each line of a content
is quoted, in HTML all text is escaped, and control characters are replaced by visible ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard

from fourfold.html import escape

if TYPE_CHECKING:
    from fourfold.models.sessions.transcript import TranscriptEntry, TranscriptHeader

TranscriptFormat: TypeAlias = Literal["markdown", "html", "openai"]
CONTENT_TYPES: Final[dict[TranscriptFormat, str]] = {
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "openai": "application/json",
}

_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "function"})
_RESULTS: Final = frozenset({"tool_result", "function_call_output"})
_TEXT_FIELDS: Final = frozenset({"type", "text", "annotations", "logprobs"})
_MESSAGE_FIELDS: Final = frozenset(
    {"id", "type", "role", "content", "tool_calls", "tool_call_id", "name", "status"}
)
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    127: 0x2421,
}
"""Control characters and their visible forms."""
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>&#~|!])")
"""Characters with a meaning inside a line of Markdown."""
_FENCES: Final = re.compile("`{3,}")
_ROLES: Final = {"human": "user", "ai": "assistant"}
_CHAT_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c1e21;background:#fff}"
    "h1{font-size:1.4rem;overflow-wrap:anywhere}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;color:#555}"
    "dd{margin:0;overflow-wrap:anywhere}"
    "article{border-left:4px solid #b8bec6;padding:.2rem 1rem;margin:1rem 0}"
    "article.turn,article.status{border-color:#e3e6ea;color:#555}"
    "article.call{border-color:#8a6d3b}article.error{border-color:#b3261e}"
    "header{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:#555}"
    "header strong{color:#1c1e21}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit;margin:.4rem 0}"
)


def iter_markdown(
    header: TranscriptHeader, entries: Iterable[TranscriptEntry], complete: bool = True
) -> Iterator[str]:
    """Yield a transcript as Markdown, one entry at a time."""
    yield f"# Session {_inline(header.id)}\n"
    yield "".join(f"\n- {name}: {_inline(value)}" for name, value in _facts(header, complete))
    yield "\n"
    for entry in entries:
        level = "##" if entry.kind == "turn" else "###"
        yield f"\n{level} {_inline(entry.title)}\n\nEvent {entry.event}, {_inline(entry.at)}\n"
        text = _visible(to_text(entry.content))
        if text:
            if _is_data(entry.content):
                fence = max(("```", *(f"{run}`" for run in _FENCES.findall(text))), key=len)
                text = f"{fence}json\n{text}\n{fence}"
            lines = text.split("\n")
            yield "\n" + "".join(f"> {line}".rstrip(" ") + "\n" for line in lines)


def iter_html(
    header: TranscriptHeader, entries: Iterable[TranscriptEntry], complete: bool = True
) -> Iterator[str]:
    """Yield a transcript as a page of HTML that needs no other file, one entry at a time."""
    title = f"Session {_escaped(header.id)}"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
    )
    for name, value in _facts(header, complete):
        yield f"<dt>{name}</dt><dd>{_escaped(value)}</dd>\n"
    yield "</dl>\n<main>\n"
    for entry in entries:
        at = _escaped(entry.at)
        yield (
            f'<article class="{_escaped(entry.kind)}" id="event-{entry.event}">\n'
            f"<header><strong>{_escaped(entry.title)}</strong>"
            f'<span>event {entry.event}</span><time datetime="{at}">{at}</time></header>\n'
        )
        text = to_text(entry.content)
        # A parser drops the first newline of a <pre>.
        yield f'<pre dir="auto">\n{_escaped(text)}</pre>\n</article>\n' if text else "</article>\n"
    yield "</main>\n</body>\n</html>\n"


def iter_openai(entries: Iterable[TranscriptEntry]) -> Iterator[str]:
    """Yield `{"messages": [...]}` as JSON, one message at a time."""
    start = '{"messages": ['
    for message in iter_chat_messages(entries):
        yield f"{start}\n  {json.dumps(message, ensure_ascii=False)}"
        start = ","
    yield '{"messages": []}\n' if start != "," else "\n]}\n"


def iter_format(
    kind: TranscriptFormat,
    header: TranscriptHeader,
    entries: Iterable[TranscriptEntry],
    complete: bool = True,
) -> Iterator[str]:
    """Yield a transcript in one of the formats."""
    if kind == "openai":
        return iter_openai(entries)
    return (iter_markdown if kind == "markdown" else iter_html)(header, entries, complete)


def _facts(header: TranscriptHeader, complete: bool) -> list[tuple[str, str]]:
    facts = [
        ("status", header.activity),
        ("at", f"event {header.event_id}" + (f", {header.at}" if header.at else "")),
        ("turns", str(header.turns)),
        ("head", header.head or "none"),
    ]
    return facts if complete else [*facts, ("note", "earlier entries are left out")]


def _visible(text: str) -> str:
    """Return a text with plain newlines, and with control characters that can be seen."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_PICTURES)


def _escaped(text: str) -> str:
    return escape(_visible(text))


def _inline(text: str) -> str:
    """Return a text as one line of Markdown without markup."""
    return _MARKUP.sub(r"\\\1", " ".join(_visible(text).split()))


# Texts


def to_text(content: Any) -> str:
    """Format a content for people: texts as they are, calls and results of tools, or JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and content and all(map(_is_part, content)):
        return "\n".join(map(to_text, content))
    text = _part_text(content) if isinstance(content, dict) else None
    return json.dumps(content, indent=2, ensure_ascii=False) if text is None else text


def _is_data(content: Any) -> bool:
    """Return True for a content that `to_text` formats as JSON."""
    if isinstance(content, dict):
        return _part_text(content) is None
    if isinstance(content, list):
        return not (content and all(map(_is_part, content)))
    return not (content is None or isinstance(content, str))


def _part_text(part: dict[str, Any]) -> str | None:
    """Format a text, call, result or message as the common model APIs write them."""
    kind = part.get("type")
    if part.get("ref") == "payload":
        size = part.get("payload_size")
        return f"[payload {part.get('payload_id')}, {size} bytes: not read, or not in this store]"
    if _is_one_of(kind, _CALLS):
        return _call_text(part)
    if _is_one_of(kind, _RESULTS):
        return f"result: {to_text(part.get('content', part.get('output')))}"
    if isinstance(part.get("text"), str) and set(part) <= _TEXT_FIELDS:
        return str(part["text"])
    if ("content" in part or "tool_calls" in part) and set(part) <= _MESSAGE_FIELDS:
        calls = part.get("tool_calls")
        parts = [part.get("content"), *(calls if isinstance(calls, list) else ())]
        return "\n".join(text for text in map(to_text, parts) if text)
    return None


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and "type" in value)


def _is_one_of(kind: Any, kinds: frozenset[str]) -> bool:
    return isinstance(kind, str) and kind in kinds


def _call_text(call: dict[str, Any]) -> str:
    """Format the call of a tool: `call search {"q": "x"}`."""
    name, arguments = _called(call)
    return f"call {name} {arguments}"


def _called(call: dict[str, Any]) -> tuple[str, str]:
    """Return the name of a called tool and its arguments as JSON."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = function.get("arguments", function.get("input", function.get("args")))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return str(function.get("name", "")), arguments


# Chat completions


def iter_chat_messages(entries: Iterable[TranscriptEntry]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a transcript in the form of OpenAI's chat completions.

    Consecutive calls of tools are one message, as that API requires. Calls of the runtime are not
    messages of a model and are left out. The answer of a turn is a message, unless one repeats it.
    """
    pending: dict[str, Any] | None = None
    for entry in entries:
        for message in _chat_messages(entry):
            if entry.kind == "turn" and pending is not None and _same_answer(pending, message):
                continue
            if pending is not None and _may_join(pending, message):
                pending["tool_calls"] = pending.get("tool_calls", []) + message["tool_calls"]
                continue
            if pending is not None:
                yield pending
            pending = message
    if pending is not None:
        yield pending


def _same_answer(message: dict[str, Any], answer: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant" and message.get("content") == answer["content"])


def _may_join(message: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if the second message has only calls, which belong to the first."""
    is_assistant = message["role"] == other["role"] == "assistant"
    return bool(is_assistant and other.get("content") is None)


def _chat_messages(entry: TranscriptEntry) -> list[dict[str, Any]]:
    """Return the messages of an entry: one, one for each result in it, or none."""
    content = entry.content
    if entry.kind == "turn":
        is_answer = entry.title.endswith(": final") and isinstance(content, str) and content
        return [{"role": "assistant", "content": content}] if is_answer else []
    if entry.kind not in {"message", "summary"}:
        return []
    role = "system" if entry.title == "summary" else _ROLES.get(entry.title, entry.title)
    fields = content if _is_message(content) else {"content": content}
    parts = (
        fields["content"] if isinstance(fields.get("content"), list) else [fields.get("content")]
    )
    if isinstance(content, dict) and content.get("type") == "reasoning":
        return []
    calls = [part for part in parts if _is_kind(part, _CALLS)]
    calls += [call for call in fields.get("tool_calls") or () if isinstance(call, dict)]
    results = [part for part in parts if _is_kind(part, _RESULTS)]
    rest = [part for part in parts if part not in calls and part not in results]
    messages = [_result_message(result) for result in results]
    text = _chat_content(rest)
    if text is None and not calls and messages:
        return messages
    message: dict[str, Any] = {"role": "assistant" if calls else role}
    if message["role"] not in _CHAT_ROLES:
        message |= {"role": "user", "name": message["role"]}
    message["content"] = text if text is not None or calls else ""
    if calls:
        message["tool_calls"] = [_chat_call(call) for call in calls]
    for name in ("tool_call_id", "name"):
        if isinstance(fields.get(name), str):
            message[name] = fields[name]
    return [*messages, message]


def _is_message(content: Any) -> bool:
    """Return True for a message with its fields, False for a bare content."""
    return isinstance(content, dict) and (
        ("content" in content and not _is_kind(content, _RESULTS)) or "tool_calls" in content
    )


def _is_kind(part: Any, kinds: frozenset[str]) -> TypeGuard[dict[str, Any]]:
    return isinstance(part, dict) and _is_one_of(part.get("type"), kinds)


def _chat_content(parts: list[Any]) -> Any:
    """Return parts as a text, or as a list if an image is among them; None for nothing."""
    parts = [part for part in parts if part is not None]
    if any(_is_kind(part, frozenset({"image_url"})) for part in parts):
        return [
            part
            if _is_kind(part, frozenset({"image_url"}))
            else {"type": "text", "text": to_text(part)}
            for part in parts
        ]
    return "\n".join(map(to_text, parts)) if parts else None


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    name, arguments = _called(call)
    identity = str(call.get("call_id") or call.get("id") or "")
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _result_message(result: dict[str, Any]) -> dict[str, Any]:
    identity = str(result.get("call_id") or result.get("tool_use_id") or "")
    text = to_text(result.get("content", result.get("output")))
    return {"role": "tool", "tool_call_id": identity, "content": text}
