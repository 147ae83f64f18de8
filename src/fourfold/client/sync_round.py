"""Rounds of sync between the graphs of this process and a peer that a server offers.

    heads ──> equal? ──> pull by tips ──> sign ──> push by tips ──> heads ──> reconcile by ranges

Equal nodes need one request. New entries are found by tips; what tips do not show, such as the
other branch of a fork, by ranges of ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from fourfold.client.sync import PeerHeads
from fourfold.client.threads.remote_sync import RemoteSync
from fourfold.errors import BadAnswer
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.sync import ranges
from fourfold.models.graphs.sync.entries import PULL_IDS_MAX
from fourfold.models.graphs.sync.export import Export
from fourfold.models.graphs.sync.ingest import IngestReport
from fourfold.models.graphs.sync.keys import Signer
from fourfold.models.graphs.sync.log import NotShareable
from fourfold.models.graphs.sync.refusals import EnvelopeRefusal

RECONCILE_TRIPS_MAX: Final = 64
"""Messages of a reconciliation; the rest of a difference is found by the next one."""
RECONCILE_IDS_MAX: Final = 50_000
"""Entries that one reconciliation exchanges."""
REFUSALS_LISTED: Final = 100
"""Refused envelopes that a report lists, from each side."""


class SyncReport(NamedTuple):
    """Result of a round with one peer in one domain."""

    domain: str
    pulled: int
    """Envelopes of the peer that were accepted here."""
    pushed: int
    """Envelopes that the peer accepted."""
    refused: tuple[EnvelopeRefusal, ...]
    """Envelopes of the peer that were refused here, the first 100."""
    refused_by_peer: tuple[EnvelopeRefusal, ...]
    not_shareable: tuple[NotShareable, ...]
    in_step: bool
    """True if both have the same entries now."""


class _Difference(NamedTuple):
    """Prefixes of entries that this node lacks, and of those that the peer lacks."""

    lacking: set[bytes]
    extra: set[bytes]


class PeerSync:
    """Sync with one peer. Rounds may be repeated, interrupted and run beside those of others.

    Args:
        graphs: The graphs of this node.
        remote: The peer, connected with a key that it created for this node.
        peer_id: The peer as this node knows it: what it may do in each domain.
        signer: Key of the identity whose new rows are signed; None only forwards.
    """

    def __init__(
        self, graphs: Graphs, remote: RemoteSync, peer_id: int, signer: Signer | None = None
    ) -> None:
        self.peer_id = peer_id
        self._graphs = graphs
        self._remote = remote
        self._signer = signer
        self._settled: dict[str, tuple[str, str]] = {}
        """Fingerprints of both sides after the last round of a domain."""

    def domains(self) -> list[str]:
        """Return the domains that are open to the peer."""
        rights = self._graphs.list_peer_rights()
        own = [right for right in rights if right.peer_id == self.peer_id]
        return [right.domain for right in own if right.may_read or right.may_write]

    def pull(self, domain: str) -> SyncReport:
        """Import what the peer has, and sign and send nothing."""
        return _Round(self._graphs, self._remote, self.peer_id, None, domain).run(pushes=False)

    def push(self, domain: str) -> SyncReport:
        """Sign what is new, and send what the peer lacks."""
        one = _Round(self._graphs, self._remote, self.peer_id, self._signer, domain)
        return one.run(pulls=False)

    def run(self, domain: str, *, audit: bool = False) -> SyncReport:
        """Pull, sign and push, until both have the same entries or one refuses the others.

        What was refused is tried again once one of the nodes has other entries, and by an audit.
        """
        one = _Round(self._graphs, self._remote, self.peer_id, self._signer, domain)
        report = one.run(settled=None if audit else self._settled.get(domain))
        self._settled[domain] = one.fingerprints
        return report


class _Round:
    """One round with a peer in one domain."""

    def __init__(
        self,
        graphs: Graphs,
        remote: RemoteSync,
        peer_id: int,
        signer: Signer | None,
        domain: str,
    ) -> None:
        self._graphs = graphs
        self._remote = remote
        self._peer_id = peer_id
        self._signer = signer
        self._domain = domain
        self._pulled = 0
        self._pushed = 0
        self._refused: list[EnvelopeRefusal] = []
        self._refused_by_peer: list[EnvelopeRefusal] = []
        self._not_shareable: tuple[NotShareable, ...] = ()
        self.fingerprints = ("", "")

    def run(
        self,
        *,
        pulls: bool = True,
        pushes: bool = True,
        settled: tuple[str, str] | None = None,
    ) -> SyncReport:
        """Run the round; `settled` are fingerprints between which nothing more can be done."""
        right = self._graphs.peer_right(self._peer_id, self._domain)
        pulls, pushes = pulls and right.may_write, pushes and right.may_read
        heads = self._compare()
        if heads is not None and self.fingerprints != settled and pulls:
            self._pull_by_tips(heads)
        tips = self._graphs.sync_tips(self._domain) if heads is None else heads.tips
        if self._signer is not None and pushes:
            report = self._graphs.sign_shared(self._domain, self._signer)
            self._not_shareable = report.not_shareable
        own, theirs = self._own(), self.fingerprints[1]
        if own == theirs or (own, theirs) == settled:
            return self._end(own == theirs)
        if pushes:
            self._push_by_tips(tips)
        heads = self._compare()
        if heads is not None:
            self._reconcile(pulls=pulls, pushes=pushes)
            heads = self._compare()
        return self._end(heads is None)

    def _own(self) -> str:
        return self._graphs.sync_heads(self._domain).fingerprint

    def _compare(self) -> PeerHeads | None:
        """Return the heads of the peer, which confirm what it has; None if they are equal."""
        own = self._own()
        heads = self._remote.heads(self._domain, own)
        self.fingerprints = own, own if heads is None else heads.heads.fingerprint
        if heads is None:
            self._graphs.confirm_tips(self._peer_id, self._graphs.sync_tips(self._domain))
        elif heads.tips is not None:
            self._graphs.confirm_tips(self._peer_id, heads.tips)
        return heads

    def _end(self, in_step: bool) -> SyncReport:
        return SyncReport(
            self._domain,
            self._pulled,
            self._pushed,
            tuple(self._refused[:REFUSALS_LISTED]),
            tuple(self._refused_by_peer[:REFUSALS_LISTED]),
            self._not_shareable,
            in_step,
        )

    # Packages

    def _ingest(self, data: bytes) -> None:
        report = self._graphs.ingest_package(self._peer_id, data)
        self._pulled += report.accepted
        _extend(self._refused, report)

    def _send(self, data: bytes) -> None:
        report = self._remote.push(self._domain, data)
        self._pushed += report.accepted
        _extend(self._refused_by_peer, report)

    def _pull_by_tips(self, heads: PeerHeads) -> None:
        if heads.tips is None:
            return
        tips = self._graphs.sync_tips(self._domain)
        after, complete = 0, False
        while not complete:
            package = self._remote.pull(self._domain, tips, after=after)
            complete = package.complete
            if not complete and package.position <= after:
                raise BadAnswer(f"pull {self._domain!r}: the peer repeats a package")
            after = package.position
            self._ingest(package.data)

    def _push_by_tips(self, tips: bytes | None) -> None:
        if tips is None:
            return
        after, complete = 0, False
        while not complete:
            package = self._graphs.export_package(
                self._domain, peer_id=self._peer_id, tips=tips, after=after, trust_seqs=True
            )
            after, complete = package.position, package.complete
            if package.envelopes:
                self._send(package.data)

    # Ranges

    def _reconcile(self, *, pulls: bool, pushes: bool) -> None:
        difference = self._find_difference()
        if pulls:
            for ids in _slices(difference.lacking):
                self._pull_ids(ids)
        if pushes:
            for ids in _slices(difference.extra):
                for package in self._packages(ids):
                    self._send(package.data)

    def _find_difference(self) -> _Difference:
        """Exchange messages until the difference is known, or as much of it as one round takes."""
        difference = _Difference(set(), set())
        data = self._graphs.reconcile(self._domain)
        for _ in range(RECONCILE_TRIPS_MAX):
            reply = ranges.decode_message(self._remote.reconcile(self._domain, data))
            data = self._graphs.reconcile(self._domain, ranges.encode_message(reply))
            message = ranges.decode_message(data)
            for ids, sent in (
                (difference.lacking, (*reply.extra, *message.lacking)),
                (difference.extra, (*message.extra, *reply.lacking)),
            ):
                ids.update(entry[: ranges.PREFIX_BYTES] for entry in sent)
            if not message.ranges or sum(map(len, difference)) > RECONCILE_IDS_MAX:
                break
        return difference

    def _pull_ids(self, ids: list[bytes]) -> None:
        after, complete = 0, False
        while not complete:
            package = self._remote.pull(self._domain, ids=ids, after=after)
            complete = package.complete
            if not complete and package.position <= after:
                raise BadAnswer(f"pull {self._domain!r}: the peer repeats a package")
            after = package.position
            self._ingest(package.data)

    def _packages(self, ids: list[bytes]) -> Iterator[Export]:
        after, complete = 0, False
        while not complete:
            package = self._graphs.export_entries(self._domain, ids, after=after)
            after, complete = package.position, package.complete
            if package.envelopes:
                yield package


def _extend(refusals: list[EnvelopeRefusal], report: IngestReport) -> None:
    """Add the refusals of a package, as many as a report lists."""
    refusals.extend(report.refused[: max(0, REFUSALS_LISTED - len(refusals))])


def _slices(ids: set[bytes]) -> Iterator[list[bytes]]:
    """Yield the ids in lists that fit into a request."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), PULL_IDS_MAX):
        yield ordered[start : start + PULL_IDS_MAX]
