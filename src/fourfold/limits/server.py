"""Limits of the server and of the client."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

# Server
LONG_POLL_S: Final = 30.0
"""How long a long-poll waits for something new."""
SSE_S: Final = 60.0
"""How long one connection of server-sent events lasts; readers come back where they were."""
SSE_KEEP_ALIVE_S: Final = 15.0
"""A comment is sent so often while nothing happens, or proxies cut the connection."""
HTTP_BODY_MAX: Final = 32 * MIB
"""Bytes of a request's body."""
HTTP_BODY_BYTES_IN_FLIGHT: Final = 256 * MIB
HTTP_BODY_SHARE: Final = 0.25
"""Bytes of bodies that are being received over all connections, and the part that one key may have
of them. The part has room for the largest body.
"""
HTTP_CONNECTIONS: Final = 4_096
HTTP_CONNECTIONS_PER_ADDRESS: Final = 256
"""Connections that are open at the same time, in all and from one address."""
HTTP_WRITE_STALL_S: Final = 30.0
"""A client that takes nothing of what it is sent is cut after so long."""
HTTP_APPEND_MESSAGES: Final = 200_000
HTTP_APPEND_COMMAS: Final = 1_000_000
"""Messages of a request, and commas in an array of messages, which are counted before the array is
split: each element takes about a hundred bytes of memory and a microsecond of the event loop.
"""
HTTP_RULES_BODY_MAX: Final = 1 * MIB
"""Bytes of a body that tells the rules of a stream, or the keys that are waited for."""
HTTP_HEAD_MAX: Final = 64 * KIB
"""Bytes of a request's head: its address and its headers."""
LIST_STREAMS_MAX: Final = 1_000
"""Streams of one page of the list."""
SWEEP_EVERY_S: Final = 1.0
"""How often streams are looked at whose time may be over."""
HTTP_KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept."""
HTTP_HEAD_S: Final = 20.0
"""How long the head of a request may take from its first byte."""
HTTP_BODY_S: Final = 30.0
HTTP_BODY_BYTES_PER_S_MIN: Final = 4 * KIB
"""How long a body may take, beside what it takes at this speed."""
HTTP_TIMEOUT_CHECK_S: Final = 1.0
"""How often connections are looked at that are too slow."""
HTTP_PIPELINE_MAX: Final = 1_024
"""Appends of one connection that are under way before no more is read from it."""
HTTP_BUSY_POLL_S: Final = 0.000_1
"""Seconds of busy polling after a response, for the next request of a client."""
HTTP_PATHS_REMEMBERED: Final = 4_096
"""Paths of streams that need not be looked at again."""
HTTP_HEADS_REMEMBERED: Final = 1_024
HTTP_HEAD_REMEMBERED_BYTES: Final = 1 * KIB
"""Heads of appends that are known again by their bytes, and how long one may be for that."""
HTTP_BACKLOG: Final = 4_096
HTTP_SHUTDOWN_S: Final = 10
"""How long requests that are under way may take when the server stops."""
RETRY_AFTER_S: Final = 1
"""When a client that was turned away may come again, where nothing else is known."""
WEBHOOK_TIMEOUT_S: Final = 30.0
"""From the look-up of a webhook's name to the last byte of its answer."""
WEBHOOK_ANSWER_BYTES: Final = 64 * KIB
"""More of an answer is not read: it says done, or nothing that matters."""
OBJECTS_RETRY_S: Final = 5.0
"""Between two attempts to reach an object store that was down when the server started."""
KEYS_CHECK_S: Final = 0.005
"""A key that was taken away is good for so long at most."""
SERVER_DATABASE_WAIT_S: Final = 10.0
"""How long a change of a key waits for another process that changes one."""
SERVER_DATABASE_RETRY_S: Final = 0.01
FILE_CLOCK_NS: Final = 100_000_000
"""Longer than the clock of any file system stands still."""
WEBHOOK_CONCURRENCY: Final = 16
WEBHOOK_OWNER_SHARE: Final = 4
"""With several owners of webhooks, one has at most this part of the calls at a time: a quarter."""
WEBHOOK_RETRY_S: Final = 1.0
WEBHOOK_RETRY_MAX_S: Final = 60.0
"""The pause before the second try; it doubles with each failure, up to the longest."""
WEBHOOK_JITTER: Final = 0.2
"""So much of a pause is up to chance, or receivers that failed together fail together again."""
WEBHOOK_BATCH_S: Final = 0.005
WEBHOOK_IDLE_S: Final = 5.0
WEBHOOK_DRAIN_S: Final = 2.0
"""How long webhooks that are under way may take when the server stops."""
APPEND_LINES: Final = 1_000
"""Lines of a file that go into one commit when a stream is loaded from it."""

# Client
CLIENT_CONNECT_S: Final = 10.0
CLIENT_TIMEOUT_S: Final = 30.0
CLIENT_LIVE_TIMEOUT_S: Final = 90.0
CLIENT_RETRY_S: Final = 30.0
COMMAND_RETRY_S: Final = 2.0
CLIENT_FOLLOW_RETRY_S: Final = 300.0
"""How long is asked again while a server cannot be reached: by a call, a command, a follower."""
CLIENT_BACKOFF_S: Final = 0.05
CLIENT_BACKOFF_S_MAX: Final = 5.0
CLIENT_WHOLE_BODY_BYTES: Final = 8 * MIB
PRODUCER_LINGER_S: Final = 0.005
PRODUCER_BATCH_COUNT: Final = 1_000
PRODUCER_BATCH_BYTES: Final = 1 * MIB
PRODUCER_IN_FLIGHT: Final = 4
PRODUCER_BUFFER_BYTES: Final = 16 * MIB
