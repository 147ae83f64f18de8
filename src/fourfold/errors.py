"""Every error that Fourfold raises, in one tree, grouped by what the caller does next.

    FourfoldError
    ├── InvalidInput (ValueError)       mend the call; nothing was written
    │   ├── InvalidConfig               mend the setting that the message names
    │   ├── ContentError                the value cannot be encoded, or the bytes not decoded
    │   ├── TooLarge                    more than fits at once: send it in parts
    │   ├── UnsupportedEncoding         the body is compressed: send it as it is
    │   └── WebhookRefused              the server does not call that address: give another
    ├── NotFound (KeyError)             the named thing does not exist
    │   ├── StreamGone                  the stream was deleted; only its forks go on
    │   ├── OffsetGone                  retention trimmed that record: read from `first_offset` on
    │   │   └── StreamRecreated         the offset is of another stream that had this name
    │   └── PayloadMissing              a reference leads to no payload: restore it, or store it
    ├── Conflict                        the state moved on: read again, then decide
    │   ├── AlreadyExists               somebody was first
    │   ├── PreconditionFailed          the expected version is not the current one
    │   │   └── HeadMoved               the session was continued meanwhile: look at its new head
    │   ├── ContentTypeMismatch         the stream holds another type
    │   ├── StreamSeqBehind             the sequence given does not come after the last one
    │   ├── ProducerGap                 a request of the producer is missing: send it first
    │   ├── WakeFenced                  a newer wake was issued since: leave this one's work to it
    │   ├── AlreadyClaimed              another worker holds the lease: wait for the next wake
    │   ├── NothingPending              the subscription is at the end of all of its streams
    │   ├── AckRefused                  that offset cannot be acknowledged: read the subscription
    │   ├── StaleRead                   something that was read has changed since
    │   ├── ReplayMismatch              another request came under the same name before
    │   └── MergeConflicted             both branches changed the same thing: resolve it
    ├── Busy                            try again, after `retry_after` seconds where it is given
    │   ├── Overloaded                  a bounded queue is full; nothing was written
    │   ├── DeadlineExceeded            the time allowed ran out; nothing was written
    │   └── LockTimeout                 another connection held a lock for too long
    ├── Refused                         not allowed in this state or mode
    │   ├── WriterLocked                another process is the writer
    │   ├── ReadOnly                    the file, folder or handle cannot be written
    │   ├── Closed                      the handle was closed, or belongs to a parent process
    │   ├── SequenceRegression          a restore would hand out used sequence numbers again
    │   ├── LimitExceeded               the app holds as much as it may: raise its limit
    │   ├── PackageRefused              a sync package does not fit; nothing was taken in
    │   │   ├── PackageTampered         its signature does not hold: ask the sender again
    │   │   ├── PackageReplayed         it was taken in before: go on with the next
    │   │   ├── PackageGap              some before it are missing: ask for them first
    │   │   ├── PackageOverlaps         part of it was taken in: ask from the cursor on
    │   │   └── PackageRegresses        it ends before the cursor: go on with a newer one
    │   ├── Unauthorized                the server asks for a key
    │   ├── Forbidden                   the key does not allow that
    │   ├── HostRefused                 the server does not answer under that name
    │   ├── StreamClosed                the stream is at its end
    │   ├── ProducerFenced              the producer began a newer epoch: take part in it, or stop
    │   ├── PublisherFenced             another node publishes that stream: stop this one
    │   ├── BranchEnded                 the branch was deleted: it can be read, not written
    │   ├── HistoryTruncated            a collection gave up that past: ask at or above its horizon
    │   └── CapabilityDenied            the session may not do that: ask one that may
    ├── FormatError                     the file is not what this version of Fourfold reads
    │   ├── FutureFormat                written by a newer Fourfold: upgrade
    │   ├── MigrationFailed             the old version is intact; start-up is refused
    │   └── ForeignFile                 not a Fourfold database
    ├── CorruptData                     stored bytes contradict themselves: restore from a backup
    │   └── SequenceCorrupt             a sequence row is missing, malformed or behind its log
    ├── StorageError                    the machine or the network failed
    │   ├── DiskFull                    free some space; nothing was written
    │   ├── CommitUncertain             the commit failed while reaching the disk: reopen and look
    │   ├── ObjectStoreError            the object store failed after its retries
    │   │   └── ObjectStoreDenied       credentials, bucket or region are wrong: mend them
    │   ├── ServerUnreachable           no answer came, and nothing is lost by asking again
    │   ├── OutcomeUnknown              no answer came: what was sent may be there, or not
    │   └── BadAnswer                   the answer is not of this protocol: check the address
    ├── CallFailed                      a function that a step called raised: look at `details`
    └── MissingDependency (ImportError) install the extra that the hint names

Each class has a `kind`, a stable machine code (codes are only ever added), and says whether the
same call may simply be tried again (`retryable`). Each instance names the thing in its message and
says in `hint` what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class FourfoldError(Exception):
    """The base of every error that Fourfold raises on purpose."""

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
        """What a program may want to act on: the entity, the seqs, the names in the message."""

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword arguments do not survive the default pickling, and errors cross process borders.
        return (_rebuild, (type(self), self.message, self.hint, self.retry_after, self.details))

    def copy(self) -> FourfoldError:
        """The same error as a new instance: one that is raised in several threads must not share a
        traceback.
        """
        return _rebuild(type(self), self.message, self.hint, self.retry_after, self.details)

    def with_message(self, message: str) -> FourfoldError:
        """The same error in other words: a caller that knows more says where it happened."""
        return _rebuild(type(self), message, self.hint, self.retry_after, self.details)

    def as_dict(self) -> dict[str, object]:
        """The error as the command line's `--json` and the HTTP server print it."""
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
    kind = "invalid_input"
    exit_code = 2
    default_hint = "Correct the value that the message names and call again; nothing was written."


class InvalidConfig(InvalidInput):
    kind = "invalid_config"
    default_hint = "Run `fourfold config` to see each setting, its value and where it comes from."


class ContentError(InvalidInput):
    kind = "content"
    default_hint = (
        "Encode only None, bool, int, finite float, str, bytes, list, dict with str keys, set, "
        "datetime, UUID and Decimal."
    )


class TooLarge(InvalidInput):
    kind = "too_large"
    default_hint = "Send it in several parts; nothing was written."


class UnsupportedEncoding(InvalidInput):
    kind = "unsupported_encoding"
    default_hint = "Send the body as it is, without Content-Encoding."


class WebhookRefused(InvalidInput):
    kind = "webhook_refused"
    default_hint = "Give an https address that leads to a public host."


class NotFound(FourfoldError, KeyError):
    kind = "not_found"
    exit_code = 3
    default_hint = "Check the name; names are case-sensitive."


class StreamGone(NotFound):
    kind = "stream_gone"
    default_hint = "Create a stream of another name."


class OffsetGone(NotFound):
    kind = "offset_gone"
    default_hint = "Read from the offset `first_offset` in the details on."


class StreamRecreated(OffsetGone):
    kind = "stream_recreated"
    default_hint = "Read the stream from its start: it was deleted and created again."


class PayloadMissing(NotFound):
    kind = "payload_missing"
    default_hint = "Store the payload first: `intern_payload`; or restore it from a backup."


class Conflict(FourfoldError):
    kind = "conflict"
    exit_code = 4
    default_hint = "Read the current state, decide again, and send a new request."


class AlreadyExists(Conflict):
    kind = "already_exists"
    default_hint = "Choose another name, or use the one that exists."


class PreconditionFailed(Conflict):
    kind = "precondition_failed"
    default_hint = "Read the current version and repeat the change on top of it."


class HeadMoved(PreconditionFailed):
    kind = "head_moved"
    default_hint = "Read the session from its current head, decide again, and publish on top of it."


class ContentTypeMismatch(Conflict):
    kind = "content_type_mismatch"
    default_hint = "Append what the stream holds, or create another stream."


class StreamSeqBehind(Conflict):
    kind = "stream_seq_behind"
    default_hint = "Give a sequence that sorts after the last one, byte by byte."


class ProducerGap(Conflict):
    kind = "producer_gap"
    default_hint = "Send the request that `expected` in the details names."


class WakeFenced(Conflict):
    kind = "wake_fenced"
    default_hint = "Stop: whoever was woken after you does this work now."


class AlreadyClaimed(Conflict):
    kind = "already_claimed"
    default_hint = "Wait for the next wake, or for the lease of the holder to end."


class NothingPending(Conflict):
    kind = "nothing_pending"
    default_hint = "Follow the wake stream, and claim when it tells of a wake."


class AckRefused(Conflict):
    kind = "ack_refused"
    default_hint = "Acknowledge an offset between the last one and the end of the stream."


class StaleRead(Conflict):
    kind = "stale_read"
    default_hint = "Read the entity again, decide again, and send a new transaction."


class ReplayMismatch(Conflict):
    kind = "replay_mismatch"
    default_hint = "Give each new transaction of a session a new local_seq."


class MergeConflicted(Conflict):
    kind = "merge_conflicted"
    default_hint = "Look at `details`, and merge again with a resolution for each entity named."


class Busy(FourfoldError):
    kind = "busy"
    retryable = True
    exit_code = 5
    default_hint = "Try again in a moment."


class Overloaded(Busy):
    kind = "overloaded"
    default_hint = "The queue is full and nothing was written: slow down and try again."


class DeadlineExceeded(Busy):
    kind = "deadline_exceeded"
    default_hint = "Nothing was written: try again, give a longer deadline, or write less at once."


class LockTimeout(Busy):
    kind = "lock_timeout"
    default_hint = "Another connection holds a lock: close long readers or writers and try again."


class Refused(FourfoldError):
    kind = "refused"
    exit_code = 6
    default_hint = "The operation is not allowed in this state."


class WriterLocked(Refused):
    kind = "writer_locked"
    default_hint = (
        "Stop the process that the message names, or open read-only: "
        "`fourfold.open(root, mode='r')`."
    )


class ReadOnly(Refused):
    kind = "read_only"
    default_hint = (
        "Open for writing, or give this user permission to write the file and its folder."
    )


class Closed(Refused):
    kind = "closed"
    default_hint = "Open the store again in this process."


class SequenceRegression(Refused):
    kind = "sequence_regression"
    default_hint = "Restore into an empty folder instead, and compare the two."


class LimitExceeded(Refused):
    kind = "limit_exceeded"
    default_hint = "Raise the limit that the message names, or write less."


class PackageRefused(Refused):
    kind = "package_refused"
    default_hint = "Ask the sender for the package that begins behind the cursor."


class PackageTampered(PackageRefused):
    kind = "package_tampered"
    default_hint = "Ask the sender again, over another way; check whose key the peer has."


class PackageReplayed(PackageRefused):
    kind = "package_replayed"
    default_hint = "Nothing is lost: go on with the next package."


class PackageGap(PackageRefused):
    kind = "package_gap"
    default_hint = "Ask the sender for the packages between the cursor and this one."


class PackageOverlaps(PackageRefused):
    kind = "package_overlaps"
    default_hint = "Ask the sender for a package that begins behind the cursor."


class PackageRegresses(PackageRefused):
    kind = "package_regresses"
    default_hint = "Nothing is lost: go on with a newer package."


class Unauthorized(Refused):
    kind = "unauthorized"
    default_hint = "Ask for a key; `fourfold key add` makes one."


class Forbidden(Refused):
    kind = "forbidden"
    default_hint = "Use a key with the scope and the prefix that this needs."


class HostRefused(Refused):
    """The server does not answer under the host that a request names."""

    kind = "host_refused"
    default_hint = "Use a name that the server has, or add it to server.hosts."


class StreamClosed(Refused):
    kind = "stream_closed"
    default_hint = "A closed stream can be read and forked, not appended to."


class ProducerFenced(Refused):
    kind = "producer_fenced"
    default_hint = "Begin a newer epoch than the one in the details, with request 0."


class PublisherFenced(Refused):
    kind = "publisher_fenced"
    default_hint = (
        "Stop this node; or let it begin anew from what is published: `fourfold bootstrap`."
    )


class BranchEnded(Refused):
    kind = "branch_ended"
    default_hint = "Write to another branch; the name of a deleted one is used up."


class HistoryTruncated(Refused):
    kind = "history_truncated"
    default_hint = (
        "Ask at or above the seq `horizon` in the details; only a backup has what was before it."
    )


class CapabilityDenied(Refused):
    kind = "capability_denied"
    default_hint = "Let a session that may do it ask, or give this one the capability."


class FormatError(FourfoldError):
    kind = "format"
    exit_code = 7
    default_hint = "Open the file with the version of Fourfold that wrote it."


class FutureFormat(FormatError):
    kind = "future_format"
    default_hint = "Upgrade: `pip install --upgrade fourfold`. Nothing was changed."


class MigrationFailed(FormatError):
    kind = "migration_failed"
    default_hint = (
        "The database keeps its old version and its data; "
        "report the message, or go back to the previous Fourfold."
    )


class ForeignFile(FormatError):
    kind = "foreign_file"
    default_hint = "The path holds a file of another program: choose another path."


class CorruptData(FourfoldError):
    kind = "corrupt_data"
    exit_code = 8
    default_hint = "Run `fourfold verify`, then restore the newest good backup: `fourfold restore`."


class SequenceCorrupt(CorruptData):
    kind = "sequence_corrupt"
    default_hint = (
        "Restore from a backup: `fourfold restore`. "
        "A new counter would hand out used numbers again, so none is made."
    )


class StorageError(FourfoldError):
    kind = "storage"
    exit_code = 9
    default_hint = "Check the disk and its mount: `fourfold doctor`."


class DiskFull(StorageError):
    kind = "disk_full"
    retryable = True
    default_hint = "Free some space on the volume and try again; nothing was written."


class CommitUncertain(StorageError):
    kind = "commit_uncertain"
    default_hint = (
        "Close and reopen the database: it shows whether the last commit is there. "
        "Further writes are refused until then."
    )


class ObjectStoreError(StorageError):
    kind = "object_store"
    retryable = True
    default_hint = "Check the address, the credentials and the network of the object store."


class ObjectStoreDenied(ObjectStoreError):
    kind = "object_store_denied"
    retryable = False
    default_hint = "Mend the credentials, the bucket's name or its region."


class ServerUnreachable(StorageError):
    kind = "server_unreachable"
    retryable = True
    default_hint = "Check the address and that the server runs: `fourfold serve ROOT`."


class OutcomeUnknown(StorageError):
    kind = "outcome_unknown"
    default_hint = "Look whether it is there; a producer may repeat its requests without that."


class BadAnswer(StorageError):
    kind = "bad_answer"
    default_hint = "Check that the address is that of a Durable Streams server, and no proxy's."


class CallFailed(FourfoldError):
    kind = "call_failed"
    default_hint = "Mend the function that the message names, or catch this error in the step."


class MissingDependency(FourfoldError, ImportError):
    kind = "missing_dependency"
    exit_code = 10
    default_hint = "Install the extra that the message names."


def tree(root: type[FourfoldError] = FourfoldError) -> list[type[FourfoldError]]:
    """Every error class, parents before children, in the order of definition."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(tree(child))
    return found
