"""The checks of an envelope that a peer hands over, in their order; they write nothing.

1. `malformed`, `too_large`, `unknown_format`
2. `bad_signature`, `key_unknown`, `content_mismatch`
3. `peer_not_allowed`, `system_app`
4. `app_not_in_domain`, `missing_dependency`, `not_the_author`, `not_the_owner`, `field_changed`,
   `object_not_in_domain`
5. `gap`, `limit_exceeded`

Each check is made for all rows of an envelope before the next one. It depends on the envelope, the
entries before it, the objects that it changes and what this node allows, not on the order of
arrival: two nodes that allow the same accept the same entries. What a row refers to may arrive
later. It decides whether the row is applied, never whether the envelope is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import SYSTEM_APP, Kind
from fourfold.models.graphs.statements import REFERENCES, SQL
from fourfold.models.graphs.sync import keys
from fourfold.models.graphs.sync.content import ContentIds, Referent
from fourfold.models.graphs.sync.envelope import (
    DecodedEnvelope,
    EnvelopeHead,
    EnvelopeRefused,
    RowBody,
    has_content,
    has_signature,
    parse,
)
from fourfold.models.graphs.validation import SHAPES

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
_SYSTEM_SLUG: Final = "system"
VALUES: Final = ("value_text", "value_number", "value_blob", "value_json")
VERSION_MAX: Final = 1 << 53
"""Greatest version of a row that arrives, so that updates can follow it."""


class VerifiedEnvelope(NamedTuple):
    """An envelope of the right format that its author signed."""

    parsed: DecodedEnvelope
    is_whole: bool
    """False if its rows are not those that the head names."""


def verify(data: bytes) -> VerifiedEnvelope:
    """Check format, values and signature, which needs no database.

    Raises:
        EnvelopeRefused: with the first reason.
    """
    parsed = parse(data)
    for body in parsed.rows:
        _check_values(body)
    _check_order(parsed)
    if not has_signature(parsed):
        raise EnvelopeRefused("bad_signature", "the author did not sign this head")
    return VerifiedEnvelope(parsed, has_content(parsed))


def _check_values(body: RowBody) -> None:
    """Raise unless the row could have been inserted."""
    if len(body.pointers) != len(REFERENCES[body.kind]):
        raise EnvelopeRefused("malformed", f"{body.kind} has {len(body.pointers)} pointers")
    if (body.object is None) != (body.version == 1) or not 1 <= body.version <= VERSION_MAX:
        raise EnvelopeRefused("malformed", "the first row of an object must be version 1")
    shape = SHAPES[body.kind]
    columns = columns_of(body, {name: 1 for name, _ in pointers_of(body)}, 1, 1, 1)
    try:
        validation.check_text(body.type, "type")
        shape.read(validation.check_fields(columns, body.kind, shape.fields), 1, "")
    except InvalidInput as error:
        raise EnvelopeRefused("malformed", error.message) from None


def _check_order(parsed: DecodedEnvelope) -> None:
    """Raise if a row does not fit what it refers to in its own envelope."""
    rows = dict(zip(parsed.head.rows, parsed.rows, strict=False))
    before: set[bytes] = set()
    for row_id, body in zip(parsed.head.rows, parsed.rows, strict=False):
        for kind, target in targets_of(body):
            if target in rows and (
                target not in before or target_fault(body, kind, rows[target]) is not None
            ):
                raise EnvelopeRefused(
                    "malformed", f"a row refers to what is not a {kind} before it"
                )
        if body.object in rows and body.object not in before:
            raise EnvelopeRefused("malformed", "a version comes before its object")
        before.add(row_id)


def pointers_of(body: RowBody) -> Iterator[tuple[str, bytes]]:
    """Yield the columns that refer to something, with the object that they refer to."""
    for (name, _), target in zip(REFERENCES[body.kind], body.pointers, strict=True):
        if target is not None:
            yield name, target


def targets_of(body: RowBody) -> Iterator[tuple[Kind, bytes]]:
    """Yield the objects that a row refers to, with their kinds."""
    for (_, kind), target in zip(REFERENCES[body.kind], body.pointers, strict=True):
        if target is not None:
            yield kind, target


def target_fault(body: RowBody, kind: Kind, target: RowBody) -> str | None:
    """Return why a row can never refer to a target, or None."""
    if target.kind != kind or target.object is not None or target.app != body.app:
        return f"a row refers to something that is not a {kind} of its app"
    return None


def columns_of(
    body: RowBody, pointers: dict[str, int], type_id: int, owner: int, flags: int
) -> dict[str, Any]:
    """Return the columns of a row, as a caller would insert them."""
    columns: dict[str, Any] = {
        **{name: value for name in VALUES if (value := getattr(body, name)) is not None},
        **pointers,
        "type_id": type_id,
        "owner_identity": owner,
        "sync_flags": flags,
        "created_at": body.created_at,
    }
    if body.updated_at is not None:
        columns["updated_at"] = body.updated_at
    return columns


class Checks:
    """The checks that read the database, in one transaction."""

    def __init__(self, graphs: Graphs, txn: ReadTransaction, content: ContentIds) -> None:
        self._txn = txn
        self._content = content
        self._masks = graphs.domains_in(txn)
        self._rights: dict[tuple[int, str], bool] = {}
        self._authors: dict[bytes, bool] = {}
        self._accepted: dict[str, frozenset[int]] = {}
        self._slugs: dict[str, int | None] = {}

    def mask(self, domain: str) -> int:
        """Return the mask of a domain; 0 if it is not defined here."""
        return self._masks.get(domain, 0)

    def is_known(self, peer_id: int, verified: VerifiedEnvelope) -> bool:
        """Check an envelope; return True if it is here already.

        Raises:
            EnvelopeRefused: with the first reason.
        """
        parsed = verified.parsed
        head = parsed.head
        if not self._is_author(head.author):
            raise EnvelopeRefused(
                "key_unknown", f"{keys.to_text(head.author)} is not an identity of this store"
            )
        if not verified.is_whole:
            raise EnvelopeRefused("content_mismatch", "the rows are not those that the head names")
        if not self._may_write(peer_id, head.domain):
            raise EnvelopeRefused(
                "peer_not_allowed", f"peer {peer_id} may not write domain {head.domain!r:.80}"
            )
        if self._txn.one(_SQL.entry, (parsed.id,)) is not None:
            return True
        if any(body.app == _SYSTEM_SLUG for body in parsed.rows):
            raise EnvelopeRefused("system_app", "rows of the system app are never accepted")
        for slug in {body.app for body in parsed.rows}:
            self._check_app(head.domain, slug)
        self._check_rows(parsed)
        self._check_place(head)
        return False

    def _is_author(self, author: bytes) -> bool:
        if author not in self._authors:
            number = self._txn.value(SQL.identity_number, (keys.to_text(author),))
            self._authors[author] = number is not None
        return self._authors[author]

    def _may_write(self, peer_id: int, domain: str) -> bool:
        key = peer_id, domain
        if key not in self._rights:
            right = self._txn.one(_SQL.right, key)
            self._rights[key] = right is not None and bool(right[1]) and bool(self.mask(domain))
        return self._rights[key]

    def app_id(self, slug: str) -> int:
        """Return the id of an app that was checked."""
        app_id = self._find_app(slug)
        assert app_id is not None
        return app_id

    def _find_app(self, slug: str) -> int | None:
        if slug not in self._slugs:
            row = self._txn.one(SQL.app_by_slug, (slug,))
            self._slugs[slug] = None if row is None else int(row[0])
        return self._slugs[slug]

    def accepts(self, domain: str, app_id: int | None) -> bool:
        """Return True if a domain accepts rows of an app here."""
        if domain not in self._accepted:
            rows = self._txn.all(_SQL.domain_apps, (domain,))
            self._accepted[domain] = frozenset(int(row[0]) for row in rows)
        accepted = self._accepted[domain]
        return app_id not in {None, SYSTEM_APP} and (not accepted or app_id in accepted)

    def _check_app(self, domain: str, slug: str) -> None:
        if not self.accepts(domain, self._find_app(slug)):
            raise EnvelopeRefused(
                "app_not_in_domain",
                f"domain {domain!r:.80} does not accept app {slug!r:.80} here",
                retryable=True,
            )

    def _check_rows(self, parsed: DecodedEnvelope) -> None:
        """Raise unless the author may write these rows."""
        head = parsed.head
        versions = self._versions(parsed)
        if any(body.owner != head.author for body in parsed.rows):
            raise EnvelopeRefused("not_the_author", "a row belongs to another key than its signer")
        for body, referent in versions:
            if referent.body.owner != body.owner:
                raise EnvelopeRefused(
                    "not_the_owner", f"a {referent.body.kind} belongs to another identity"
                )
        for body, referent in versions:
            _check_fixed(body, referent.body)
        for _, referent in versions:
            if not referent.is_member:
                raise EnvelopeRefused(
                    "object_not_in_domain",
                    f"the object of a version is not in domain {head.domain!r:.80}",
                    retryable=True,
                )

    def _versions(self, parsed: DecodedEnvelope) -> list[tuple[RowBody, Referent]]:
        """Return the rows that are versions, with their objects; raise if one is not here."""
        head = parsed.head
        versions: list[tuple[RowBody, Referent]] = []
        fresh: dict[bytes, RowBody] = {}
        for row_id, body in zip(head.rows, parsed.rows, strict=True):
            fresh[row_id] = body
            if body.object is None:
                continue
            first = fresh.get(body.object)
            referent = (
                self._content.find_referent(head.domain, body.object)
                if first is None
                else Referent(first, None, is_member=True)
            )
            if referent is None:
                raise EnvelopeRefused(
                    "missing_dependency",
                    f"the object {body.object.hex()[:16]} of a version is not here yet",
                    retryable=True,
                )
            versions.append((body, referent))
        return versions

    def _check_place(self, head: EnvelopeHead) -> None:
        """Raise unless the entry before this one is here."""
        if head.prev is None:
            return
        before = self._txn.one(_SQL.entry, (head.prev,))
        if before is None:
            raise EnvelopeRefused(
                "gap", f"the entry before {head.seq} of its log is missing", retryable=True
            )
        log_id = self._txn.value(_SQL.log, (head.author, head.incarnation, head.domain))
        if (before[0], before[1] + 1) != (log_id, head.seq):
            raise EnvelopeRefused("malformed", "an envelope does not continue its own log")


def _check_fixed(body: RowBody, first: RowBody) -> None:
    """Raise unless a version keeps the fixed fields of the first row of its object."""
    same = (body.app, body.kind, body.type) == (first.app, first.kind, first.type)
    if not same or first.object is not None:
        raise EnvelopeRefused("field_changed", f"a version is not one of a {body.kind} of its type")
    before, after = dict(pointers_of(first)), dict(pointers_of(body))
    for name in SHAPES[body.kind].fixed:
        if before.get(name) != after.get(name) or (
            name == "created_at" and body.created_at != first.created_at
        ):
            raise EnvelopeRefused("field_changed", f"a version of a {body.kind} changes {name}")
