"""A session of the OpenAI Agents SDK with branches and the usage of turns.

    session = BranchedAgentsSession("user-42", store.sessions)
    result = await Runner.run(agent, "Hello", session=session)
    await session.store_run_usage(result)
    await session.create_branch_from_turn(1, "shorter")

It has these calls of the SDK's `AdvancedSQLiteSession`, with the same results. A branch is a name
for a newest item; an `openai-agents/switched` event makes another branch the current one. Branches
share the items that they have in common, and none is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from fourfold.adapters.openai_agents import (
    POPPED,
    SWITCHED,
    AgentsSession,
    is_adapter_event,
)
from fourfold.errors import AlreadyExists, InvalidInput
from fourfold.models.sessions import SessionView

USAGE: Final = "openai-agents/usage"
MAIN: Final = "main"
"""The branch of a new conversation."""
_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS: Final = ("input_tokens_details", "output_tokens_details")
_PREVIEW_CHARS: Final = 100
_PAGE: Final = 256
_T = TypeVar("_T")


class BranchedAgentsSession(AgentsSession):
    """A conversation with branches. `get_items` and the other calls act on the current branch."""

    async def create_branch_from_turn(
        self, turn_number: int, branch_name: str | None = None
    ) -> str:
        """Begin a branch before the n-th user message, make it the current one, return its name.

        Args:
            turn_number: A turn of the current branch, from 1.
            branch_name: A name that was never used in this conversation; by default a new one.

        Raises:
            InvalidInput: The branch has no such turn.
            AlreadyExists: The name was used before.
        """

        def change(
            view: SessionView, branches: _ConversationBranches
        ) -> tuple[dict[str, Any], str]:
            turns = [message for message in branches.messages() if message.get("role") == "user"]
            if type(turn_number) is not int or not 1 <= turn_number <= len(turns):
                raise InvalidInput(
                    f"turn_number: must be from 1 to {len(turns)}, got {turn_number!r:.50}"
                )
            name = branch_name
            if name is None:
                name = f"branch_from_turn_{turn_number}_{view.counters.event}"
            if not isinstance(name, str) or not name.strip():
                raise InvalidInput(f"branch_name: must not be empty, got {name!r:.50}")
            if name in branches.tips:
                raise AlreadyExists(f"branch {name!r:.100} already exists")
            return {"branch": name, "top": turns[turn_number - 1]["below"]}, name

        return await self._retry_on_conflict(lambda: self._switch(change))

    async def switch_to_branch(self, branch_id: str) -> None:
        """Make a branch the current one.

        Raises:
            InvalidInput: There is no such branch.
        """

        def change(
            _view: SessionView, branches: _ConversationBranches
        ) -> tuple[dict[str, Any], None]:
            return {"branch": branch_id, "top": branches.tip(branch_id)}, None

        await self._retry_on_conflict(lambda: self._switch(change))

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return the branches in the order of their creation.

        Each has `branch_id`, `message_count`, `user_turns`, `is_current` and `created_at`.
        """

        def work(branches: _ConversationBranches) -> list[dict[str, Any]]:
            listed = []
            for name, created_at in branches.created.items():
                messages = branches.messages(name)
                listed.append(
                    {
                        "branch_id": name,
                        "message_count": len(messages),
                        "user_turns": _count_turns(messages),
                        "is_current": name == branches.current,
                        "created_at": created_at,
                    }
                )
            return listed

        return await self._retry_on_conflict(lambda: self._read(work))

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns of a branch, by default of the current one.

        Each has `turn`, `content`, `full_content`, `timestamp` and `can_branch`.
        """

        def work(branches: _ConversationBranches) -> list[dict[str, Any]]:
            turns: list[dict[str, Any]] = []
            for message in branches.messages(branch_id):
                if message.get("role") != "user":
                    continue
                content = self._item(message).get("content", "")
                text = content if isinstance(content, str) else str(content)
                cut = text if len(text) <= _PREVIEW_CHARS else f"{text[:_PREVIEW_CHARS]}..."
                turns.append(
                    {
                        "turn": len(turns) + 1,
                        "content": cut,
                        "full_content": content,
                        "timestamp": branches.times[message["id"]],
                        "can_branch": True,
                    }
                )
            return turns

        return await self._retry_on_conflict(lambda: self._read(work))

    async def store_run_usage(self, result: Any) -> None:
        """Store the usage of a run with the last turn of the current branch.

        Call it after `Runner.run`. Another usage of the same turn replaces it.
        """
        usage = result.context_wrapper.usage
        if usage is None:
            return
        stored: dict[str, Any] = {name: int(getattr(usage, name, 0) or 0) for name in _COUNTS}
        for name in _DETAILS:
            details = getattr(usage, name, None)
            stored[name] = None if details is None else details.model_dump(mode="json")

        def work() -> None:
            sid = self._sid()
            if sid is None:
                return
            view = self._sessions.current_view(sid)
            branches = _ConversationBranches(view)
            turn = _count_turns(branches.messages())
            event = {"type": USAGE, "branch": branches.current, "turn": turn, "usage": stored}
            if turn:
                self._sessions.append_event(sid, event, expected_last_id=view.counters.event)

        await self._retry_on_conflict(work)

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the usage of one turn, empty if it has none, or of all turns of a branch."""

        def work(branches: _ConversationBranches) -> dict[str, Any] | list[dict[str, Any]]:
            usages = branches.usages(branches.current if branch_id is None else branch_id)
            if user_turn_number is not None:
                return usages.get(user_turn_number, {})
            return [{"user_turn_number": turn, **usages[turn]} for turn in sorted(usages)]

        return await self._retry_on_conflict(lambda: self._read(work))

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the sums of all turns, or of those of a branch; None without any."""

        def work(branches: _ConversationBranches) -> dict[str, int] | None:
            names = branches.tips if branch_id is None else [branch_id]
            usages = [usage for name in names for usage in branches.usages(name).values()]
            if not usages:
                return None
            sums = {name: sum(usage[name] for usage in usages) for name in _COUNTS}
            return {**sums, "total_turns": len(usages)}

        return await self._retry_on_conflict(lambda: self._read(work))

    def _read(self, work: Callable[[_ConversationBranches], _T]) -> _T:
        sid = self._sid()
        return work(
            _ConversationBranches(None if sid is None else self._sessions.current_view(sid))
        )

    def _switch(
        self, change: Callable[[SessionView, _ConversationBranches], tuple[dict[str, Any], _T]]
    ) -> _T:
        view = self._sessions.current_view(self._get_or_create_sid())
        fields, result = change(view, _ConversationBranches(view))
        event = {"type": SWITCHED, **fields}
        self._sessions.append_event(view.id, event, expected_last_id=view.counters.event)
        return result


class _ConversationBranches:
    """The branches of a conversation at the event of a view."""

    def __init__(self, view: SessionView | None) -> None:
        self.current = MAIN
        self.tips: dict[str, int | None] = {MAIN: None}
        self.created: dict[str, str] = {}
        self.times: dict[int, str] = {}
        """When each item was added, by the number of its message."""
        self._usages: dict[str, dict[int, dict[str, Any]]] = {}
        self._messages: dict[int, dict[str, Any]] = {}
        for event in _iter_events(view):
            if event.type == USAGE:
                data = event.data
                self._usages.setdefault(data["branch"], {})[data["turn"]] = data["usage"]
            elif is_adapter_event(event):
                if event.type == SWITCHED:
                    self.current = event.data["branch"]
                self.created.setdefault(self.current, event.at)
                top = event.data["top"] if event.type in {POPPED, SWITCHED} else event.entity_id
                self.tips[self.current] = top
                if event.type not in {POPPED, SWITCHED} and event.entity_id is not None:
                    self._messages[event.entity_id] = event.data["message"]
                    self.times[event.entity_id] = event.at

    def tip(self, name: str) -> int | None:
        """Return the newest item of a branch."""
        if name not in self.tips:
            raise InvalidInput(f"unknown branch {name!r:.100}")
        return self.tips[name]

    def messages(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the messages of a branch, by default of the current one, oldest first."""
        messages = []
        number = self.tip(self.current if name is None else name)
        while number is not None:
            messages.append(self._messages[number])
            number = messages[-1]["below"]
        return messages[::-1]

    def usages(self, name: str) -> dict[int, dict[str, Any]]:
        """Return the usage of the turns of a branch."""
        return self._usages.get(name, {})


def _iter_events(view: SessionView | None) -> Iterator[Any]:
    count = 0 if view is None else view.counters.event
    for start in range(0, count, _PAGE):
        if view is not None:
            yield from view.events[start : min(start + _PAGE, count)]


def _count_turns(messages: list[dict[str, Any]]) -> int:
    return sum(message.get("role") == "user" for message in messages)
