"""Which subscriptions there are, and which streams each follows. Every function is the work of one
transaction, or a part of it.

Patterns of stream names: `*` is one part between slashes, `**` any number of them. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, LimitExceeded, NotFound
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import validation
from fourfold.models.streams.subscriptions.records import Link, Subscribe, Subscription
from fourfold.models.streams.validation import stored


def check_pattern(given: object) -> str:
    """A pattern that can match a name, without slashes at its ends."""
    if not isinstance(given, str):
        raise InvalidInput(f"a pattern is text, not {given!r:.80}")
    pattern = stored(given).strip("/")
    if not 0 < len(pattern) <= limits.SUBSCRIPTION_PATTERN_MAX or not pattern.isprintable():
        raise InvalidInput(
            f"a pattern is printable text of 1 to {limits.SUBSCRIPTION_PATTERN_MAX} characters"
        )
    parts = pattern.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise InvalidInput(f"{pattern!r:.80} matches no name of a stream")
    if any("**" in part and part != "**" for part in parts):
        raise InvalidInput(
            f"{pattern!r:.80} has ** inside of a part", hint="Write ** alone between slashes."
        )
    return pattern


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of those that a pattern means; quick for every pattern and name."""
    wanted, given = pattern.split("/"), name.split("/")
    at = here = 0
    # Where the last ** stood, and how far it reached: when the rest fails it reaches further.
    star, reached = -1, 0
    while here < len(given):
        if at < len(wanted) and wanted[at] == "**":
            star, reached = at, here
            at += 1
        elif at < len(wanted) and _part_matches(wanted[at], given[here]):
            at += 1
            here += 1
        elif star >= 0:
            reached += 1
            at, here = star + 1, reached
        else:
            return False
    return all(part == "**" for part in wanted[at:])


def literal_prefix(pattern: str) -> str:
    """What every name that matches begins with."""
    kept: list[str] = []
    for part in pattern.split("/"):
        if part == "**":
            # `a/**` means `a` too, so the slash before it is not certain.
            return "/".join(kept)
        before, star, _ = part.partition("*")
        if star:
            return "/".join([*kept, before])
        kept.append(part)
    return "/".join(kept)


def _part_matches(pattern: str, part: str) -> bool:
    first, *between = pattern.split("*")
    if not between:
        return first == part
    last = between.pop()
    if len(part) < len(first) + len(last) or not part.startswith(first) or not part.endswith(last):
        return False
    at, end = len(first), len(part) - len(last)
    for piece in between:
        at = part.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


SQL = load_queries("fourfold.models.streams.subscriptions")


def find(snapshot: ReadTransaction, subscription_id: str) -> Subscription:
    row = snapshot.one(SQL.by_id, (validation.stored(subscription_id),))
    if row is None:
        raise NotFound(f"there is no subscription {subscription_id!r:.200}")
    return Subscription._make(row)


def check(wanted: Subscribe) -> Subscribe:
    """The same with every field in its one form; InvalidInput when one does not fit."""
    if (
        not 0 < len(wanted.id) <= limits.SUBSCRIPTION_ID_MAX
        or not wanted.id.isprintable()
        or "/" in wanted.id
    ):
        raise InvalidInput(
            f"the id of a subscription is printable text of 1 to {limits.SUBSCRIPTION_ID_MAX} "
            "characters without a slash"
        )
    if wanted.kind not in {"webhook", "pull-wake"}:
        raise InvalidInput("a subscription is of the type webhook or pull-wake")
    pattern = None if wanted.pattern is None else check_pattern(wanted.pattern)
    streams = check_streams(wanted.streams)
    if pattern is None and not streams:
        raise InvalidInput("a subscription has a pattern, streams, or both")
    ttl = limits.LEASE_TTL_MS if wanted.lease_ttl_ms is None else wanted.lease_ttl_ms
    if type(ttl) is not int or not limits.LEASE_TTL_MS_MIN <= ttl <= limits.LEASE_TTL_MS_MAX:
        raise InvalidInput(
            f"lease_ttl_ms is an integer from {limits.LEASE_TTL_MS_MIN} to "
            f"{limits.LEASE_TTL_MS_MAX}"
        )
    texts = {"description": wanted.description, "address": wanted.address}
    for what, text in texts.items():
        if text is not None and len(validation.stored(text)) > limits.SUBSCRIPTION_TEXT_MAX:
            raise InvalidInput(f"{what} has more than {limits.SUBSCRIPTION_TEXT_MAX} characters")
    return wanted._replace(
        pattern=pattern, streams=streams, lease_ttl_ms=ttl, wake_stream=_way(wanted)
    )


def _way(wanted: Subscribe) -> str | None:
    """The stream that wakes are told in; None where they are told to an address."""
    url, wake_stream = wanted.webhook_url, wanted.wake_stream
    if wanted.kind == "webhook":
        if not url or wake_stream is not None:
            raise InvalidInput("a webhook subscription has webhook.url, and no wake_stream")
        return None
    if not wake_stream or url is not None:
        raise InvalidInput("a pull-wake subscription has wake_stream, and no webhook")
    return validation.check_name(wake_stream.strip("/"))


def check_streams(given: Sequence[str]) -> tuple[str, ...]:
    if len(given) > limits.SUBSCRIPTION_STREAMS_MAX:
        raise InvalidInput(f"a request names at most {limits.SUBSCRIPTION_STREAMS_MAX} streams")
    if not all(isinstance(each, str) for each in given):
        raise InvalidInput("streams are names, as text")
    return tuple(sorted({validation.check_name(each.strip("/")) for each in given}))


def config_hash(wanted: Subscribe) -> str:
    """What two requests for the same subscription have in common."""
    fields = wanted._replace(address="", id="")[:-1]  # Without its owner.
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def create(txn: Transaction, wanted: Subscribe, now_ms: int) -> tuple[Subscription, bool]:
    """A new subscription at the end of every stream that it follows; the same again when it is
    there and is like that.
    """
    hashed = config_hash(wanted)
    row = txn.one(SQL.by_id, (wanted.id,))
    if row is not None:
        found = Subscription._make(row)
        if found.config_hash != hashed:
            raise AlreadyExists(f"the subscription {wanted.id!r} exists and is another")
        return found, False
    if txn.value(SQL.count) >= limits.SUBSCRIPTIONS_MAX:
        raise LimitExceeded(
            f"the store has {limits.SUBSCRIPTIONS_MAX} subscriptions",
            hint="Delete some, or follow several streams with one.",
        )
    owner = wanted.owner
    if owner is not None and (
        txn.value(SQL.count_of_owner, (owner.prefix,)) >= limits.SUBSCRIPTIONS_PER_OWNER_MAX
    ):
        raise LimitExceeded(
            f"keys for {owner.prefix!r:.200} have {limits.SUBSCRIPTIONS_PER_OWNER_MAX} "
            "subscriptions",
            hint="Delete some, or follow several streams with one.",
        )
    params = (
        *(wanted.id, wanted.kind, wanted.pattern, wanted.webhook_url, wanted.wake_stream),
        *(wanted.lease_ttl_ms, wanted.description, hashed, wanted.address, now_ms),
        *((None, None) if owner is None else owner),
    )
    txn.execute(SQL.add, params)
    made = find(txn, wanted.id)
    if wanted.pattern is not None:
        _backfill(txn, made, wanted.pattern)
    add_streams(txn, made, wanted.streams)
    return made, True


def delete(txn: Transaction, subscription_id: str) -> bool:
    """Remove a subscription; whether there was one. Its number stays used up."""
    row = txn.one(SQL.by_id, (validation.stored(subscription_id),))
    if row is None:
        return False
    found = Subscription._make(row)
    txn.execute(SQL.drop_links, (found.sub,))
    txn.execute(SQL.drop, (found.sub,))
    txn.execute(SQL.drop_arrivals)
    return True


def add_streams(txn: Transaction, found: Subscription, streams: Sequence[str]) -> None:
    """Follow streams by name, from their end on; one that is followed already stays where it is."""
    if found.wake_stream in streams:
        raise InvalidInput("a subscription cannot follow its own wake_stream")
    for stream in streams:
        tail = int(txn.value(SQL.tail, (stream,)) or 0)
        txn.execute(SQL.link, (found.sub, stream, 1, 0, tail, tail))


def remove_stream(txn: Transaction, found: Subscription, stream: str) -> None:
    """Follow a stream no longer by name; if the pattern means it too, it is still followed."""
    txn.execute(SQL.unlink, (found.sub, stream))
    txn.execute(SQL.drop_unlinked, (found.sub, stream))


def settle_arrivals(txn: Transaction) -> int:
    """Hold the patterns against streams that were made since; how many there were."""
    arrived = txn.all(SQL.arrivals, (limits.SUBSCRIPTION_BATCH,))
    if not arrived:
        return 0
    patterns = txn.all(SQL.patterns)
    for sid, stream, tail in arrived:
        if stream is not None:
            for sub, pattern, wake_stream in patterns:
                if stream != wake_stream and matches(pattern, stream):
                    txn.execute(SQL.link, (sub, stream, 0, 1, 0, tail))
            txn.execute(SQL.refresh_links, (stream, tail))
        txn.execute(SQL.arrived, (sid,))
    return len(arrived)


def _backfill(txn: Transaction, made: Subscription, pattern: str) -> None:
    """Link every stream that is there and that the pattern means, at its end."""
    prefix = literal_prefix(pattern)
    after, linked = "", 0
    while True:
        page = txn.all(SQL.names_from, (after, prefix, validation.behind(prefix), 10_000))
        meant = [
            (made.sub, stream, 0, 1, tail, tail)
            for stream, tail in page
            if stream != made.wake_stream and matches(pattern, stream)
        ]
        linked += len(meant)
        if linked > limits.SUBSCRIPTION_BACKFILL_MAX:
            raise LimitExceeded(
                f"the pattern {pattern!r:.80} means more than "
                f"{limits.SUBSCRIPTION_BACKFILL_MAX} streams",
                hint="Divide them among several subscriptions.",
            )
        txn.execute_many(SQL.link, meant)
        if len(page) < 10_000:
            return
        after = page[-1][0]


def is_inside(snapshot: ReadTransaction, found: Subscription, prefix: str) -> bool:
    """Return True if a subscription follows something, and only streams under `prefix`."""
    row = snapshot.one(SQL.links_inside, (found.sub, prefix, validation.behind(prefix))) or (0, 0)
    has_links, has_outside = row
    if found.pattern is not None:
        return not has_outside and literal_prefix(found.pattern).startswith(prefix)
    return bool(has_links) and not has_outside


def links(
    snapshot: ReadTransaction, found: Subscription, after: str, limit: int
) -> tuple[Link, ...]:
    rows = snapshot.all(SQL.links, (found.sub, validation.stored(after), limit))
    return tuple(Link(row[0], bool(row[1]), *row[2:]) for row in rows)
