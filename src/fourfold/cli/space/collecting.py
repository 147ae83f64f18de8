"""`fourfold space gc`: what a space gives up of its past, and the policy that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.ages import Age, Kept
from fourfold.cli.output import Output, counted, size
from fourfold.cli.space.arguments import existing_space, space_arguments
from fourfold.errors import InvalidInput
from fourfold.models.documents import Collected, GcPolicy, Space

_SHOWN: Final = {
    "revisions": "revision",
    "facts": "fact",
    "values": "value",
    "requests": "request",
    "snapshots": "snapshot",
    "blobs": "blob",
}


@space_arguments("gc")
@click.option(
    "--keep", multiple=True, type=Kept("seqs"), help="History that stays: the newest seqs, or time."
)
@click.option("--pin", "pins", multiple=True, type=int, metavar="SEQ", help="A seq that stays.")
@click.option(
    "--snapshots",
    metavar="all|log|NUMBER",
    help="Which snapshots stay; see `fourfold space maintain`.",
)
@click.option("--keep-requests", is_flag=True, help="Leave the texts of old requests as they are.")
@click.option("--blobs", is_flag=True, help="Also blobs that nothing mentions any more.")
@click.option("--blob-age", type=Age(), help="Blobs younger than this stay; 1d if not given.")
@click.option("--save", is_flag=True, help="Keep these options as the policy of the space.")
@click.option("--off", is_flag=True, help="Forget the policy of the space; collect nothing.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def gc(out: Output, root: Path, did: str, **given: Any) -> None:
    """Give up old history, by these options or by the policy of the space.

    Below the new horizon only forks, bases of merges and pinned seqs stay readable; all other reads
    there are refused. It cannot be undone, so try --dry-run first: it changes nothing. Without a
    policy of its own, a space gives up nothing unless you say so here.
    """
    policy = _policy(given)
    if given["off"] and (policy is not None or given["save"] or given["dry_run"]):
        raise InvalidInput("--off goes alone")
    if given["save"] and (policy is None or given["dry_run"]):
        raise InvalidInput("--save needs options to keep, and does not go with --dry-run")
    with existing_space(root, did, writes=not given["dry_run"]) as space:
        if given["off"]:
            space.set_gc_policy(None)
            _say(out, space, None)
            return
        if given["save"]:
            space.set_gc_policy(policy)
        _say(out, space, space.gc(policy, dry_run=given["dry_run"]))


def _policy(given: dict[str, Any]) -> GcPolicy | None:
    """The policy that the options describe; None when there are none."""
    fields: dict[str, Any] = {}
    for kept in given["keep"]:
        name = "keep_seqs" if isinstance(kept, int) else "keep_seconds"
        if name in fields:
            raise InvalidInput("--keep was given twice for the same kind of bound")
        fields[name] = kept
    if given["pins"]:
        fields["pins"] = given["pins"]
    if given["snapshots"] is not None:
        text = given["snapshots"]
        fields["snapshots"] = int(text) if text.isdecimal() else text
    if given["keep_requests"]:
        fields["requests"] = False
    if given["blobs"]:
        fields["blobs"] = True
    if given["blob_age"] is not None:
        fields["blob_age_s"] = given["blob_age"]
    return GcPolicy(**fields) if fields else None


def _say(out: Output, space: Space, done: Collected | None) -> None:
    policy = space.gc_policy()
    if out.as_json:
        collected = None if done is None else {**msgspec.to_builtins(done), "bytes": done.bytes}
        shown = None if policy is None else msgspec.to_builtins(policy)
        out.document({"did": space.did, "policy": shown, "collected": collected})
        return
    if done is None:
        out.line(f"{space.did} gives up nothing from now on")
        return
    gone = [
        f"{counted(found.count, noun)}"
        for kind, noun in _SHOWN.items()
        if (found := getattr(done, kind)).count
    ]
    verb = "would go" if done.dry_run else "gone"
    out.line(f"{verb}: {', '.join(gone) or 'nothing'} ({size(done.bytes)})")
    below = f", and {counted(done.kept_points, 'point')} below" if done.kept_points else ""
    out.line(f"every state from seq {done.horizon} on stays readable{below}")
