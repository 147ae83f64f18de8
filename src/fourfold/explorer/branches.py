"""Pages of branches: the graph, the preview of a merge with its conflicts, and the merge."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput, MergeConflicted, PreconditionFailed
from fourfold.explorer import branch_graph
from fourfold.explorer.branch_graph import Lane, Node, Proposal
from fourfold.explorer.differences import differences
from fourfold.explorer.documents import MAIN, commit_row, read_branches, read_states
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Visit
from fourfold.wire.documents import (
    BranchInfo,
    ConflictInfo,
    DocumentState,
    LogPage,
    LogRow,
    MergeOutcome,
    Point,
    SpaceInfo,
    author_of,
)

COMMITS_DRAWN: Final = 40
COMMITS_READ: Final = 1_000
"""Newest commits of each side of a merge that are read for the authors of its values."""
_ABSENT: Final = object()


class BranchesPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of branches."""

    did: str
    end: int | None = None
    """Last seq of the graph; by default now."""


class MergeQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the preview of a merge."""

    did: str
    source: str
    target: str = ""
    moved: int = 0
    """1 if a branch changed after an earlier preview."""


async def branches_page(visit: Visit, query: BranchesPageQuery) -> dict[str, Any]:
    """Show the branches of a space as a graph and as a table."""
    at = format_at(visit.at)
    info, branches = await asyncio.gather(
        visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo, at=at),
        read_branches(visit, query.did, at),
    )
    commits = await _commits(visit, query.did, min(query.end or info.seq, info.seq))
    return {
        "token": secrets.token_hex(16),
        "space": info,
        "branches": [_branch_row(branch, commits) for branch in branches],
        "graph": {"commits": commits, "lanes": _lanes(branches, commits)},
        "earlier": commits[0]["seq"] - 1 if commits and commits[0]["seq"] > 1 else None,
        "is_newest": query.end is None or query.end >= info.seq,
    }


async def _commits(visit: Visit, did: str, end: int) -> list[dict[str, Any]]:
    """Return the commits that the graph shows, oldest first."""
    page = await visit.api.get(
        *(f"/v1/spaces/{did}/log", LogPage),
        after=max(0, end - COMMITS_DRAWN),
        limit=COMMITS_DRAWN,
    )
    return [commit_row(row, visit.now_ms) for row in page.items if row.seq <= end]


def _branch_row(branch: BranchInfo, commits: list[dict[str, Any]]) -> dict[str, Any]:
    merged = [commit["seq"] for commit in commits if commit["source"] == branch.name]
    times = {commit["seq"]: commit["at_ms"] for commit in commits}
    return {
        **msgspec.to_builtins(branch),
        "label": branch.name or MAIN,
        "merged_at": merged[-1] if merged and branch.name else None,
        "head_at_ms": times.get(branch.head_seq),
    }


def _lanes(branches: list[BranchInfo], commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the branches that have commits in the graph, and their parents."""
    shown = {commit["branch"] for commit in commits} | {""}
    return [
        {
            "name": branch.name,
            "label": branch.name or MAIN,
            "parent": branch.parent,
            "fork_seq": branch.fork_seq,
            "note": "deleted" if branch.status == "deleted" else "",
        }
        for branch in branches
        if branch.name in shown
    ]


def draw(visit_link: Any, did: str, graph: dict[str, Any], proposal: Any = None) -> Any:
    """Return the graph as SVG, for a template."""
    nodes = [
        Node(
            commit["seq"],
            commit["branch"],
            visit_link(
                "/document", did=did, id=commit["ids"][0], branch=commit["branch"], at=commit["seq"]
            )
            if commit["ids"]
            else visit_link("/space", did=did, branch=commit["branch"], at=commit["seq"]),
            f"seq {commit['seq']} on {commit['branch'] or MAIN}, {commit['change']}",
            commit["source"],
        )
        for commit in graph["commits"]
    ]
    lanes = [Lane(**lane) for lane in graph["lanes"]]
    return branch_graph.draw(lanes, nodes, None if proposal is None else Proposal(**proposal))


async def merge_page(visit: Visit, query: MergeQuery) -> dict[str, Any]:
    """Show what a merge would do, with its conflicts first."""
    info, branches = await asyncio.gather(
        visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo), read_branches(visit, query.did)
    )
    body = {"source": query.source, "target": query.target, "dry_run": True}
    response = await visit.api.call("POST", f"/v1/spaces/{query.did}/merges", body)
    outcome = visit.api.decode(response, MergeOutcome)
    entities = await _compare(visit, query.did, outcome)
    commits = await _commits(visit, query.did, info.seq)
    conflicts = sum(1 for entity in entities for row in entity["rows"] if row["conflict"])
    names = {"": MAIN}
    return {
        "space": info,
        "source": query.source,
        "target": query.target,
        "source_label": names.get(query.source, query.source),
        "target_label": names.get(query.target, query.target),
        "outcome": {"source": outcome.source, "target": outcome.target, "base": outcome.base},
        "etag": response.headers.get("etag", ""),
        "entities": entities,
        "conflicts": conflicts,
        "merged": sum(len(entity["rows"]) for entity in entities) - conflicts,
        "graph": {"commits": commits, "lanes": _lanes(branches, commits)},
        "proposal": {
            "source": query.source,
            "target": query.target,
            "base_seq": outcome.base.seq,
            "seq": info.seq + 1,
        },
        "branches": [_branch_row(branch, commits) for branch in branches],
        "moved": bool(query.moved),
    }


async def _compare(visit: Visit, did: str, outcome: MergeOutcome) -> list[dict[str, Any]]:
    """Return for each entity of a merge the values that differ, in three versions and merged."""
    conflicts = {conflict.id: conflict for conflict in outcome.conflicts}
    ids = list(conflicts)
    ids += [operation.id for operation in outcome.operations if operation.id not in conflicts]
    points = (outcome.base, outcome.target, outcome.source)
    (bases, targets, sources), (target_log, source_log) = await asyncio.gather(
        asyncio.gather(
            *(
                read_states(visit, did, ids, branch=point.branch, at=str(point.seq))
                for point in points
            )
        ),
        asyncio.gather(*(_read_log(visit, did, point, outcome.base.seq) for point in points[1:])),
    )
    entities = []
    for name in ids:
        base, target, source = (_document(states.get(name)) for states in (bases, targets, sources))
        rows = _rows(base, target, source, conflicts.get(name))
        for row in rows:
            row["authors"] = {
                side: None if side in row["unchanged"] else _author(log, name, row["path"])
                for side, log in (("target", target_log), ("source", source_log))
            }
        entities.append({"id": name, "rows": rows})
    return entities


async def _read_log(visit: Visit, did: str, point: Point, base_seq: int) -> list[LogRow]:
    """Return the newest commits of one side of a merge since the base, newest first."""
    page = await visit.api.get(
        *(f"/v1/spaces/{did}/log", LogPage),
        after=max(base_seq, point.seq - COMMITS_READ),
        at=point.seq,
        limit=COMMITS_READ,
    )
    return [row for row in reversed(page.items) if row.branch == point.branch]


def _author(log: list[LogRow], entity: str, path: str) -> dict[str, Any] | None:
    """Return who last set a value on one side, and at which seq; None if it is not in the log."""
    for row in log:
        for operation in row.original.get("operations", ()):
            if operation["id"] != entity:
                continue
            patches = operation.get("patches", ())
            paths = [patch.get("path", "") for patch in patches] if patches else [""]
            if any(_overlaps(path, changed) for changed in paths):
                return {"seq": row.seq, "by": author_of(row.session)}
    return None


def _document(state: DocumentState | None) -> Any:
    return None if state is None else state.document


def _rows(
    base: Any, target: Any, source: Any, conflict: ConflictInfo | None
) -> list[dict[str, Any]]:
    """Return the values of an entity that one side changed or both; conflicts first."""
    paths = [] if conflict is None else list(conflict.paths)
    rows = [_row(path, base, target, source, is_conflict=True) for path in paths]
    ours = {change.path for change in differences(base, target)}
    theirs = {change.path for change in differences(base, source)}
    for path in sorted(ours | theirs):
        if not any(_overlaps(path, other) for other in paths):
            row = _row(path, base, target, source, is_conflict=False)
            row["by"] = "target" if path in ours else "source"
            rows.append(row)
    return rows


def _row(path: str, base: Any, target: Any, source: Any, *, is_conflict: bool) -> dict[str, Any]:
    sides = {
        name: _at(value, path)
        for name, value in (("base", base), ("target", target), ("source", source))
    }
    return {
        "path": path,
        "conflict": is_conflict,
        "by": None,
        **{name: None if value is _ABSENT else value for name, value in sides.items()},
        "absent": [name for name, value in sides.items() if value is _ABSENT],
        "unchanged": [name for name in ("target", "source") if sides[name] == sides["base"]],
    }


def _overlaps(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _at(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer, or a mark if there is none."""
    if value is None:
        return _ABSENT
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return _ABSENT
    return value


async def merge(visit: Visit, fields: dict[str, str]) -> str:
    """Merge a branch as it was previewed; if a branch has changed since, show a new preview."""
    did, source, target = fields["did"], fields["source"], fields.get("target", "")
    body = {"source": source, "target": target, "resolutions": _resolutions(fields)}
    headers = {"if-match": fields["etag"]} if fields.get("etag") else {}
    try:
        await visit.api.call("POST", f"/v1/spaces/{did}/merges", body, headers)
    except (PreconditionFailed, MergeConflicted):
        return visit.link("/merge", did=did, source=source, target=target, moved=1)
    return visit.link("/branches", did=did)


def _resolutions(fields: dict[str, str]) -> list[dict[str, Any]]:
    """Return the decisions of a form: fields `choice.N`, `id.N`, `path.N` and `value.N`."""
    resolutions = []
    for name, choice in fields.items():
        kind, _, number = name.partition(".")
        if kind != "choice":
            continue
        resolution: dict[str, Any] = {"id": fields[f"id.{number}"]}
        if fields.get(f"path.{number}"):
            resolution["path"] = fields[f"path.{number}"]
        if choice != "value":
            resolution["choice"] = choice
        else:
            text = fields.get(f"value.{number}", "")
            try:
                resolution["value"] = msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise InvalidInput(
                    f"value of a conflict: must be JSON: {error}, got {text!r:.80}",
                    hint='Quote text, as in "paid".',
                ) from None
        resolutions.append(resolution)
    return resolutions


PAGES: Final = (
    ExplorerPage("/branches", "branches.html", branches_page, BranchesPageQuery, "Show branches."),
    ExplorerPage("/merge", "merge.html", merge_page, MergeQuery, "Preview a merge."),
)
FORMS: Final = (Form("/merge", merge, dict[str, str], "Merge a branch."),)
