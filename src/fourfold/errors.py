"""Every error that Fourfold raises, in one tree, grouped by the reaction of the caller.

    FourfoldError
    ├── InvalidInput (ValueError)       correct the call; nothing was written
    │   ├── InvalidConfig               correct the setting that the message names
    │   ├── ContentError                the value cannot be encoded, or the bytes cannot be decoded
    │   ├── TooLarge                    the request exceeds a size limit: split it
    │   ├── UnsupportedEncoding         the body is compressed: send it uncompressed
    │   └── WebhookRefused              the server does not call that address: use another
    ├── NotFound (KeyError)             the named object does not exist
    │   ├── StreamGone                  the stream was deleted; only its forks remain
    │   ├── OffsetGone                  retention removed that record: read from `first_offset`
    │   │   └── StreamRecreated         the offset belongs to a deleted stream of this name
    │   └── PayloadMissing              a reference points to a missing payload: store or restore it
    ├── Conflict                        the state has changed: read again, then decide
    │   ├── AlreadyExists               an object of that name already exists
    │   ├── PreconditionFailed          the expected version is not the current one
    │   │   └── HeadMoved               the session was continued meanwhile: read its new head
    │   ├── ContentTypeMismatch         the stream has another content type
    │   ├── StreamSeqOutOfOrder         the Stream-Seq is not greater than the last one
    │   ├── ProducerGap                 a request of the producer is missing: send it first
    │   ├── WakeFenced                  a newer wake was issued: it owns the work
    │   ├── AlreadyClaimed              another worker holds the lease: wait for the next wake
    │   ├── LeaseLost                   another worker has claimed the session: stop
    │   ├── NothingPending              no stream of the subscription has records after its cursor
    │   ├── AckRefused                  that offset cannot be acknowledged: read the subscription
    │   ├── StaleRead                   an entity that was read has changed since
    │   ├── ReplayMismatch              a different request was sent with the same identity
    │   ├── MergeConflicted             both branches changed the same entity: resolve it
    │   └── UniqueViolation             another entity has that value in a unique index
    ├── Busy                            try again, after `retry_after` seconds if given
    │   ├── Overloaded                  a bounded queue is full; nothing was written
    │   │   └── QuotaExceeded           a quota of the key is exhausted: wait
    │   ├── DeadlineExceeded            the deadline passed; nothing was written
    │   └── LockTimeout                 another connection held a lock for too long
    ├── Refused                         not allowed in this state or mode
    │   ├── WriterLocked                another process has the database open for writing
    │   ├── ReadOnly                    the file, folder or handle is read-only
    │   ├── Closed                      the handle is closed, or belongs to a parent process
    │   ├── SequenceRegression          a restore would reuse sequence numbers
    │   ├── LimitExceeded               the app has reached its limit: raise it
    │   ├── RuleBroken                  the write breaks a rule of a type: nothing was written
    │   ├── PackageRefused              a sync package cannot be applied; nothing was imported
    │   │   ├── PackageTampered         its signature is invalid: request it again
    │   │   ├── PackageReplayed         it was already imported: continue with the next
    │   │   ├── PackageGap              packages before it are missing: request them first
    │   │   ├── PackageOverlaps         part of it was imported: request from the cursor
    │   │   └── PackageRegresses        it ends before the cursor: continue with a newer one
    │   ├── Unauthorized                the server requires a key
    │   ├── Forbidden                   the key does not allow the request
    │   ├── HostRefused                 the server does not accept that host name
    │   ├── StreamClosed                the stream is closed
    │   ├── ProducerFenced              the producer started a newer epoch: join it, or stop
    │   ├── PublisherFenced             another node publishes that stream: stop this one
    │   ├── BranchEnded                 the branch was deleted: it can be read, not written
    │   ├── HistoryTruncated            garbage collection removed that history: see `horizon`
    │   └── CapabilityDenied            the session lacks the capability
    ├── FormatError                     this version of Fourfold does not read the file
    │   ├── FutureFormat                written by a newer Fourfold: upgrade
    │   ├── MigrationFailed             the old version is intact; the database does not open
    │   └── ForeignFile                 not a Fourfold database
    ├── CorruptData                     stored data is inconsistent: restore from a backup
    │   └── SequenceCorrupt             a sequence row is missing, malformed or too low
    ├── StorageError                    the machine or the network failed
    │   ├── DiskFull                    free some space; nothing was written
    │   ├── CommitUncertain             the commit failed on its way to disk: reopen and check
    │   ├── ObjectStoreError            the object store failed after all retries
    │   │   └── ObjectStoreDenied       credentials, bucket or region are wrong: correct them
    │   ├── ServerUnreachable           no response; the request is safe to repeat
    │   ├── OutcomeUnknown              no response; the write may or may not be there
    │   └── BadAnswer                   the response is not of this protocol: check the address
    ├── CallFailed                      a function that a step called raised: see `details`
    └── MissingDependency (ImportError) install the extra that the hint names

Each class has a `kind`, a stable code for programs (codes are only ever added), and the flag
`retryable`: True if the same call may be repeated. Each instance names its subject in the message,
and `hint` states what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class FourfoldError(Exception):
    """Base class of all errors that Fourfold raises on purpose."""

    kind: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = "Run `fourfold doctor` to check the machine and the store."

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.retry_after = retry_after
        self.details: dict[str, object] = dict(details or {})
        """Facts for programs: entity, seqs, and the names in the message."""

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # The default pickling loses keyword arguments, and errors are sent between processes.
        return (_rebuild, (type(self), self.message, self.hint, self.retry_after, self.details))

    def copy(self) -> FourfoldError:
        """Return an equal error; raised in several threads, they do not share a traceback."""
        return _rebuild(type(self), self.message, self.hint, self.retry_after, self.details)

    def with_message(self, message: str) -> FourfoldError:
        """Return a copy with another message, for a caller that can be more specific."""
        return _rebuild(type(self), message, self.hint, self.retry_after, self.details)

    def as_dict(self) -> dict[str, object]:
        """Return the error as printed by the command line (`--json`) and the HTTP server."""
        out: dict[str, object] = {
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
        }
        if self.retry_after is not None:
            out["retry_after"] = self.retry_after
        if self.details:
            out["details"] = self.details
        return out


def _rebuild(
    cls: type[FourfoldError],
    message: str,
    hint: str,
    retry_after: float | None,
    details: dict[str, object],
) -> FourfoldError:
    return cls(message, hint=hint, retry_after=retry_after, details=details)


class InvalidInput(FourfoldError, ValueError):
    """An argument or a request is invalid; nothing was written."""

    kind = "invalid_input"
    exit_code = 2
    default_hint = "Correct the value that the message names and call again; nothing was written."


class InvalidConfig(InvalidInput):
    """A setting is unknown, or its value or the configuration file is invalid."""

    kind = "invalid_config"
    default_hint = "Run `fourfold config` to see each setting, its value and where it comes from."


class ContentError(InvalidInput):
    """A value cannot be encoded, or bytes cannot be decoded."""

    kind = "content"
    default_hint = (
        "Encode only None, bool, int, finite float, str, bytes, list, dict with str keys, set, "
        "datetime, UUID and Decimal."
    )


class TooLarge(InvalidInput):
    """A request exceeds a size limit; nothing was written."""

    kind = "too_large"
    default_hint = "Split the request into smaller parts; nothing was written."


class UnsupportedEncoding(InvalidInput):
    """The body of a request has a Content-Encoding that is not supported."""

    kind = "unsupported_encoding"
    default_hint = "Send the body uncompressed, without Content-Encoding."


class WebhookRefused(InvalidInput):
    """The server does not call webhooks at that address."""

    kind = "webhook_refused"
    default_hint = "Use an https address of a public host."


class NotFound(FourfoldError, KeyError):
    """The named database, stream, session, entity or other object does not exist."""

    kind = "not_found"
    exit_code = 3
    default_hint = "Check the name; names are case-sensitive."


class StreamGone(NotFound):
    """The stream was deleted, but its forks still use its records."""

    kind = "stream_gone"
    default_hint = "Create a stream with another name."


class OffsetGone(NotFound):
    """Retention removed the record at that offset."""

    kind = "offset_gone"
    default_hint = "Read from the offset `first_offset` in the details."


class StreamRecreated(OffsetGone):
    """The offset belongs to a deleted stream of the same name."""

    kind = "stream_recreated"
    default_hint = "Read the stream from its start: it was deleted and created again."


class PayloadMissing(NotFound):
    """A reference points to a payload that is not stored."""

    kind = "payload_missing"
    default_hint = "Store the payload first with `intern_payload`, or restore it from a backup."


class Conflict(FourfoldError):
    """The current state does not allow the change; read it again and decide."""

    kind = "conflict"
    exit_code = 4
    default_hint = "Read the current state, decide again, and send a new request."


class AlreadyExists(Conflict):
    """An object of that name already exists."""

    kind = "already_exists"
    default_hint = "Choose another name, or use the existing object."


class PreconditionFailed(Conflict):
    """The expected version is not the current one."""

    kind = "precondition_failed"
    default_hint = "Read the current version and repeat the change on top of it."


class HeadMoved(PreconditionFailed):
    """The head of the session is not the expected one: another turn was added."""

    kind = "head_moved"
    default_hint = "Read the session from its current head, decide again, and publish on top of it."


class ContentTypeMismatch(Conflict):
    """The content type differs from that of the stream."""

    kind = "content_type_mismatch"
    default_hint = "Append data of the content type of the stream, or create another stream."


class StreamSeqOutOfOrder(Conflict):
    """The Stream-Seq of an append is not greater than the last one."""

    kind = "stream_seq_behind"
    default_hint = "Send a sequence that sorts after the last one, byte by byte."


class ProducerGap(Conflict):
    """A request of the producer is missing before this one."""

    kind = "producer_gap"
    default_hint = "Send the request with the sequence number `expected` in the details."


class WakeFenced(Conflict):
    """A newer wake of the subscription was issued."""

    kind = "wake_fenced"
    default_hint = "Stop: a newer wake owns this work."


class AlreadyClaimed(Conflict):
    """Another worker holds the lease of the subscription or session."""

    kind = "already_claimed"
    default_hint = "Wait for the next wake, or until the lease of the holder expires."


class LeaseLost(Conflict):
    """The epoch is not that of the current lease of the session; nothing was written."""

    kind = "lease_lost"
    is_stale_write_owner_error = True
    """The mark that LangGraph's users proposed for the error of a checkpointer whose writer lost a
    thread.
    """
    default_hint = "Stop: another worker owns the session. To continue, claim it and read it again."


class NothingPending(Conflict):
    """No stream of the subscription has records after its cursor."""

    kind = "nothing_pending"
    default_hint = "Follow the wake stream, and claim after the next wake."


class AckRefused(Conflict):
    """The offset cannot be acknowledged: it is outside of the pending records."""

    kind = "ack_refused"
    default_hint = (
        "Acknowledge an offset between the last acknowledged one and the end of the stream."
    )


class StaleRead(Conflict):
    """An entity that the transaction read has changed since."""

    kind = "stale_read"
    default_hint = "Read the entity again, decide again, and send a new transaction."


class ReplayMismatch(Conflict):
    """A different request was sent before with the same identity."""

    kind = "replay_mismatch"
    default_hint = "Use a new local_seq for each new transaction of a session."


class MergeConflicted(Conflict):
    """Both branches changed the same entity."""

    kind = "merge_conflicted"
    default_hint = "See `details`, and merge again with a resolution for each entity in it."


class UniqueViolation(Conflict):
    """Another entity already has a value that a unique index allows once."""

    kind = "unique_violation"
    default_hint = "Use another value, or change the entity `other` in `details` first."


class Busy(FourfoldError):
    """The operation is temporarily impossible; retry after `retry_after` seconds, if given."""

    kind = "busy"
    retryable = True
    exit_code = 5
    default_hint = "Try again later."


class Overloaded(Busy):
    """A bounded queue is full; nothing was written."""

    kind = "overloaded"
    default_hint = "Send fewer requests at a time, and try again; nothing was written."


class QuotaExceeded(Overloaded):
    """A quota of the key is exhausted; nothing was written."""

    kind = "quota_exceeded"
    default_hint = "Try again after `retry_after` seconds, or ask for a key with a larger quota."


class DeadlineExceeded(Busy):
    """The deadline of the operation passed; nothing was written."""

    kind = "deadline_exceeded"
    default_hint = "Try again with a longer deadline or a smaller write; nothing was written."


class LockTimeout(Busy):
    """Another connection held a lock for too long."""

    kind = "lock_timeout"
    default_hint = "Close long-running readers or writers, and try again."


class Refused(FourfoldError):
    """The operation is not allowed in the current state or mode."""

    kind = "refused"
    exit_code = 6
    default_hint = "See the message for the state that does not allow the operation."


class WriterLocked(Refused):
    """Another process has the database open for writing."""

    kind = "writer_locked"
    default_hint = (
        "Stop the process that the message names, or open read-only: "
        "`fourfold.open(root, mode='r')`."
    )


class ReadOnly(Refused):
    """The file, the folder or the handle is read-only."""

    kind = "read_only"
    default_hint = (
        "Open for writing, or give this user write permission for the file and its folder."
    )


class Closed(Refused):
    """The handle is closed, or was opened by a parent process before a fork."""

    kind = "closed"
    default_hint = "Open the store again in this process."


class SequenceRegression(Refused):
    """A restore would assign sequence numbers again that are already in use."""

    kind = "sequence_regression"
    default_hint = "Restore into an empty folder instead, and compare the two."


class LimitExceeded(Refused):
    """The write would exceed a limit of the app."""

    kind = "limit_exceeded"
    default_hint = "Raise the limit that the message names, or write less."


class RuleBroken(Refused):
    """The write breaks a rule of a type."""

    kind = "rule_broken"
    default_hint = "List the rules of the app with `fourfold app describe`."


class PackageRefused(Refused):
    """A sync package cannot be applied; nothing was imported."""

    kind = "package_refused"
    default_hint = "Request the package that starts after the cursor."


class PackageTampered(PackageRefused):
    """The signature of a sync package is invalid."""

    kind = "package_tampered"
    default_hint = "Request the package again over another channel, and check the key of the peer."


class PackageReplayed(PackageRefused):
    """The sync package was already imported."""

    kind = "package_replayed"
    default_hint = "Continue with the next package; nothing is lost."


class PackageGap(PackageRefused):
    """Sync packages before this one are missing."""

    kind = "package_gap"
    default_hint = "Request the packages between the cursor and this one."


class PackageOverlaps(PackageRefused):
    """Part of the sync package was already imported."""

    kind = "package_overlaps"
    default_hint = "Request a package that starts after the cursor."


class PackageRegresses(PackageRefused):
    """The sync package ends before the cursor."""

    kind = "package_regresses"
    default_hint = "Continue with a newer package; nothing is lost."


class Unauthorized(Refused):
    """The server requires a key."""

    kind = "unauthorized"
    default_hint = "Create a key with `fourfold key add`, and send it with the request."


class Forbidden(Refused):
    """The key does not allow the request."""

    kind = "forbidden"
    default_hint = "Use a key with the required scope and prefix."


class HostRefused(Refused):
    """The server does not accept the Host header of the request."""

    kind = "host_refused"
    default_hint = "Use a host name of the server, or add this one to the setting server.hosts."


class StreamClosed(Refused):
    """The stream is closed: it can be read and forked, but not appended to."""

    kind = "stream_closed"
    default_hint = "Append to another stream, or fork this one."


class ProducerFenced(Refused):
    """The producer has started a newer epoch."""

    kind = "producer_fenced"
    default_hint = "Start a newer epoch than the one in the details, with request 0."


class PublisherFenced(Refused):
    """Another node publishes the same data."""

    kind = "publisher_fenced"
    default_hint = (
        "Stop this node, or restore it from the published data with `fourfold bootstrap`."
    )


class BranchEnded(Refused):
    """The branch was deleted: it can be read, but not written."""

    kind = "branch_ended"
    default_hint = "Write to another branch; the name of a deleted branch cannot be reused."


class HistoryTruncated(Refused):
    """Garbage collection removed the history at that seq."""

    kind = "history_truncated"
    default_hint = (
        "Read at or above the seq `horizon` in the details; only a backup has older history."
    )


class CapabilityDenied(Refused):
    """The session lacks the capability for the operation."""

    kind = "capability_denied"
    default_hint = "Use a session that has the capability, or grant it to this one."


class FormatError(FourfoldError):
    """The file has a format that this version of Fourfold does not read."""

    kind = "format"
    exit_code = 7
    default_hint = "Open the file with the version of Fourfold that wrote it."


class FutureFormat(FormatError):
    """The file was written by a newer version of Fourfold."""

    kind = "future_format"
    default_hint = "Upgrade with `pip install --upgrade fourfold`; nothing was changed."


class MigrationFailed(FormatError):
    """A schema migration failed; the database keeps its old version and its data."""

    kind = "migration_failed"
    default_hint = "Report the message, or return to the previous version of Fourfold."


class ForeignFile(FormatError):
    """The file is not a Fourfold database."""

    kind = "foreign_file"
    default_hint = "Choose another path: this file belongs to another program."


class CorruptData(FourfoldError):
    """Stored data is damaged or inconsistent."""

    kind = "corrupt_data"
    exit_code = 8
    default_hint = (
        "Run `fourfold verify`, then restore the newest good backup with `fourfold restore`."
    )


class SequenceCorrupt(CorruptData):
    """A row of the sequence table is missing, malformed or lower than its log."""

    kind = "sequence_corrupt"
    default_hint = (
        "Restore from a backup with `fourfold restore`; a new counter would reuse numbers."
    )


class StorageError(FourfoldError):
    """The disk, the machine or the network failed."""

    kind = "storage"
    exit_code = 9
    default_hint = "Run `fourfold doctor` to check the disk and its mount."


class DiskFull(StorageError):
    """The disk is full; nothing was written."""

    kind = "disk_full"
    retryable = True
    default_hint = "Free space on the volume, and try again; nothing was written."


class CommitUncertain(StorageError):
    """A commit failed while it was written to disk, so its outcome is unknown."""

    kind = "commit_uncertain"
    default_hint = (
        "Close and reopen the database to see if the last commit is there; until then, writes fail."
    )


class ObjectStoreError(StorageError):
    """A request to the object store failed after all retries."""

    kind = "object_store"
    retryable = True
    default_hint = "Check the address, the credentials and the network of the object store."


class ObjectStoreDenied(ObjectStoreError):
    """The object store rejected the credentials, the bucket or the region."""

    kind = "object_store_denied"
    retryable = False
    default_hint = "Correct the credentials, the name of the bucket or its region."


class ServerUnreachable(StorageError):
    """The server did not respond; the request is safe to repeat."""

    kind = "server_unreachable"
    retryable = True
    default_hint = "Check the address, and that the server is running: `fourfold serve ROOT`."


class OutcomeUnknown(StorageError):
    """The connection failed before the response, so the outcome is unknown."""

    kind = "outcome_unknown"
    default_hint = "Check if the write is there; requests of a producer are safe to repeat."


class BadAnswer(StorageError):
    """The response is not valid in the Durable Streams protocol."""

    kind = "bad_answer"
    default_hint = "Check that the address is that of a Durable Streams server, not of a proxy."


class CallFailed(FourfoldError):
    """A function that a step called raised an error; see `details`."""

    kind = "call_failed"
    default_hint = "Fix the function that the message names, or catch this error in the step."


class MissingDependency(FourfoldError, ImportError):
    """An optional dependency is not installed."""

    kind = "missing_dependency"
    exit_code = 10
    default_hint = "Install the extra that the message names."


def tree(root: type[FourfoldError] = FourfoldError) -> list[type[FourfoldError]]:
    """Return every error class, parents before children, in the order of definition."""
    classes = [root]
    for child in root.__subclasses__():
        classes.extend(tree(child))
    return classes
