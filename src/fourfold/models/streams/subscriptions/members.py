"""Subscriptions and the streams that each follows, by name or by pattern.

In patterns of stream names, `*` matches within one part between slashes, `**` any number of parts.
Functions with a transaction run in one, or in part of one; the others are pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, LimitExceeded, NotFound
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import validation
from fourfold.models.streams.subscriptions.records import Link, Subscribe, Subscription
from fourfold.models.streams.validation import check_storable

SUBSCRIPTIONS_MAX: Final = 10_000
SUBSCRIPTIONS_PER_OWNER_MAX: Final = 2_500
"""Subscriptions that the keys of one prefix may create."""
SUBSCRIPTION_ID_MAX: Final = 200
SUBSCRIPTION_PATTERN_MAX: Final = 1_024
SUBSCRIPTION_BACKFILL_MAX: Final = 100_000
"""Streams that a new pattern may cover: they are linked in one transaction."""
LEASE_TTL_MS: Final = 30_000
LEASE_TTL_MS_MIN: Final = 1_000
LEASE_TTL_MS_MAX: Final = 600_000
"""Default, minimum and maximum time to live of a lease."""


def check_pattern(text: object) -> str:
    """Return a valid pattern without slashes at its ends, or raise InvalidInput."""
    if not isinstance(text, str):
        raise InvalidInput(f"pattern must be text, got {text!r:.80}")
    pattern = check_storable(text).strip("/")
    if not 0 < len(pattern) <= SUBSCRIPTION_PATTERN_MAX or not pattern.isprintable():
        raise InvalidInput(
            f"pattern must be printable text of 1 to {SUBSCRIPTION_PATTERN_MAX} characters, "
            f"got {text!r:.80}"
        )
    parts = pattern.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise InvalidInput(f"pattern {pattern!r:.80} cannot match a stream name")
    if any("**" in part and part != "**" for part in parts):
        raise InvalidInput(
            f"pattern {pattern!r:.80}: ** must be a whole part",
            hint="Write ** alone between slashes.",
        )
    return pattern


def matches(pattern: str, name: str) -> bool:
    """Return True if a pattern matches a name; fast for every pattern and name."""
    expected, parts = pattern.split("/"), name.split("/")
    at = here = 0
    # Index of the last **, and how far it matched: if the rest fails it matches more.
    star, reached = -1, 0
    while here < len(parts):
        if at < len(expected) and expected[at] == "**":
            star, reached = at, here
            at += 1
        elif at < len(expected) and _part_matches(expected[at], parts[here]):
            at += 1
            here += 1
        elif star >= 0:
            reached += 1
            at, here = star + 1, reached
        else:
            return False
    return all(part == "**" for part in expected[at:])


def literal_prefix(pattern: str) -> str:
    """Return the prefix of every name that the pattern matches."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part == "**":
            # `a/**` matches `a` too, so the slash before it is not part of the prefix.
            return "/".join(parts)
        before, star, _ = part.partition("*")
        if star:
            return "/".join([*parts, before])
        parts.append(part)
    return "/".join(parts)


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
    """Return a subscription, or raise NotFound."""
    row = snapshot.one(SQL.by_id, (validation.check_storable(subscription_id),))
    if row is None:
        raise NotFound(f"unknown subscription {subscription_id!r:.200}")
    return Subscription._make(row)


def check(request: Subscribe) -> Subscribe:
    """Return the settings of a subscription in normal form, or raise InvalidInput."""
    if (
        not 0 < len(request.id) <= SUBSCRIPTION_ID_MAX
        or not request.id.isprintable()
        or "/" in request.id
    ):
        raise InvalidInput(
            f"subscription id must be printable text of 1 to {SUBSCRIPTION_ID_MAX} "
            f"characters without a slash, got {request.id!r:.80}"
        )
    if request.kind not in {"webhook", "pull-wake"}:
        raise InvalidInput(
            f"subscription type must be webhook or pull-wake, got {request.kind!r:.80}"
        )
    pattern = None if request.pattern is None else check_pattern(request.pattern)
    streams = check_streams(request.streams)
    if pattern is None and not streams:
        raise InvalidInput("pass a pattern, streams, or both")
    ttl = LEASE_TTL_MS if request.lease_ttl_ms is None else request.lease_ttl_ms
    if type(ttl) is not int or not LEASE_TTL_MS_MIN <= ttl <= LEASE_TTL_MS_MAX:
        raise InvalidInput(
            f"lease_ttl_ms must be an integer from {LEASE_TTL_MS_MIN} to "
            f"{LEASE_TTL_MS_MAX}, got {ttl!r:.80}"
        )
    texts = {"description": request.description, "address": request.address}
    for field, text in texts.items():
        if text is not None and len(validation.check_storable(text)) > limits.SUBSCRIPTION_TEXT_MAX:
            raise InvalidInput(
                f"{field} must have at most {limits.SUBSCRIPTION_TEXT_MAX} characters"
            )
    return request._replace(
        pattern=pattern, streams=streams, lease_ttl_ms=ttl, wake_stream=_wake_stream(request)
    )


def _wake_stream(request: Subscribe) -> str | None:
    """Return the stream to write wakes to; None for a webhook."""
    url, wake_stream = request.webhook_url, request.wake_stream
    if request.kind == "webhook":
        if not url or wake_stream is not None:
            raise InvalidInput("a webhook subscription requires webhook.url, without wake_stream")
        return None
    if not wake_stream or url is not None:
        raise InvalidInput("a pull-wake subscription requires wake_stream, without webhook")
    return validation.check_name(wake_stream.strip("/"))


def check_streams(names: Sequence[str]) -> tuple[str, ...]:
    """Return the stream names sorted, without duplicates, or raise InvalidInput."""
    if len(names) > limits.SUBSCRIPTION_STREAMS_MAX:
        raise InvalidInput(
            f"streams must be at most {limits.SUBSCRIPTION_STREAMS_MAX} names, got {len(names)}"
        )
    if not all(isinstance(name, str) for name in names):
        raise InvalidInput("streams must be names as text")
    return tuple(sorted({validation.check_name(name.strip("/")) for name in names}))


def config_hash(request: Subscribe) -> str:
    """Return the hash of the settings, which is equal for repeated requests."""
    fields = request._replace(address="", id="")[:-1]  # Without its owner.
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def create(txn: Transaction, request: Subscribe, now_ms: int) -> tuple[Subscription, bool]:
    """Create a subscription at the end of its streams, or return an equal existing one.

    The second result is True if it is new.
    """
    hashed = config_hash(request)
    row = txn.one(SQL.by_id, (request.id,))
    if row is not None:
        subscription = Subscription._make(row)
        if subscription.config_hash != hashed:
            raise AlreadyExists(f"subscription {request.id!r} already exists with other settings")
        return subscription, False
    if txn.value(SQL.count) >= SUBSCRIPTIONS_MAX:
        raise LimitExceeded(
            f"cannot create more than {SUBSCRIPTIONS_MAX} subscriptions in a store",
            hint="Delete some, or follow several streams with one.",
        )
    owner = request.owner
    if owner is not None and (
        txn.value(SQL.count_of_owner, (owner.prefix,)) >= SUBSCRIPTIONS_PER_OWNER_MAX
    ):
        raise LimitExceeded(
            f"keys for {owner.prefix!r:.200} cannot create more than "
            f"{SUBSCRIPTIONS_PER_OWNER_MAX} subscriptions",
            hint="Delete some, or follow several streams with one.",
        )
    params = (
        *(request.id, request.kind, request.pattern, request.webhook_url, request.wake_stream),
        *(request.lease_ttl_ms, request.description, hashed, request.address, now_ms),
        *((None, None) if owner is None else owner),
    )
    txn.execute(SQL.add, params)
    created = find(txn, request.id)
    if request.pattern is not None:
        _backfill(txn, created, request.pattern)
    add_streams(txn, created, request.streams)
    return created, True


def delete(txn: Transaction, subscription_id: str) -> bool:
    """Delete a subscription; return False if there was none."""
    row = txn.one(SQL.by_id, (validation.check_storable(subscription_id),))
    if row is None:
        return False
    subscription = Subscription._make(row)
    txn.execute(SQL.drop_links, (subscription.sub,))
    txn.execute(SQL.drop, (subscription.sub,))
    txn.execute(SQL.drop_arrivals)
    return True


def add_streams(txn: Transaction, subscription: Subscription, streams: Sequence[str]) -> None:
    """Follow streams by name from their end; the cursor of a followed stream stays."""
    if subscription.wake_stream in streams:
        raise InvalidInput("a subscription cannot follow its own wake_stream")
    for stream in streams:
        tail = int(txn.value(SQL.tail, (stream,)) or 0)
        txn.execute(SQL.link, (subscription.sub, stream, 1, 0, tail, tail))


def remove_stream(txn: Transaction, subscription: Subscription, stream: str) -> None:
    """Stop following a stream by name; it is still followed if the pattern matches it."""
    txn.execute(SQL.unlink, (subscription.sub, stream))
    txn.execute(SQL.drop_unlinked, (subscription.sub, stream))


def link_arrivals(txn: Transaction) -> int:
    """Match the patterns against new streams; return how many there were."""
    arrivals = txn.all(SQL.arrivals, (limits.SUBSCRIPTION_BATCH,))
    if not arrivals:
        return 0
    patterns = txn.all(SQL.patterns)
    for sid, stream, tail in arrivals:
        if stream is not None:
            for sub, pattern, wake_stream in patterns:
                if stream != wake_stream and matches(pattern, stream):
                    txn.execute(SQL.link, (sub, stream, 0, 1, 0, tail))
            txn.execute(SQL.refresh_links, (stream, tail))
        txn.execute(SQL.arrived, (sid,))
    return len(arrivals)


def _backfill(txn: Transaction, created: Subscription, pattern: str) -> None:
    """Link every existing stream that the pattern matches, at its end."""
    prefix = literal_prefix(pattern)
    after, linked = "", 0
    while True:
        page = txn.all(
            SQL.names_from, (after, prefix, validation.prefix_upper_bound(prefix), 10_000)
        )
        matching = [
            (created.sub, stream, 0, 1, tail, tail)
            for stream, tail in page
            if stream != created.wake_stream and matches(pattern, stream)
        ]
        linked += len(matching)
        if linked > SUBSCRIPTION_BACKFILL_MAX:
            raise LimitExceeded(
                f"pattern {pattern!r:.80} matches more than {SUBSCRIPTION_BACKFILL_MAX} streams",
                hint="Divide them among several subscriptions.",
            )
        txn.execute_many(SQL.link, matching)
        if len(page) < 10_000:
            return
        after = page[-1][0]


def is_inside(snapshot: ReadTransaction, subscription: Subscription, prefix: str) -> bool:
    """Return True if a subscription follows streams, and only such under `prefix`."""
    row = snapshot.one(
        SQL.links_inside, (subscription.sub, prefix, validation.prefix_upper_bound(prefix))
    ) or (0, 0)
    has_links, has_outside = row
    if subscription.pattern is not None:
        return not has_outside and literal_prefix(subscription.pattern).startswith(prefix)
    return bool(has_links) and not has_outside


def links(
    snapshot: ReadTransaction, subscription: Subscription, after: str, limit: int
) -> tuple[Link, ...]:
    """Return at most `limit` cursors of a subscription after a stream name."""
    rows = snapshot.all(SQL.links, (subscription.sub, validation.check_storable(after), limit))
    return tuple(Link(row[0], bool(row[1]), *row[2:]) for row in rows)
