"""Runs `fourfold` for other programs, such as a shell, in processes that start at once.

`python forked_commands.py SOCKET ARGUMENTS...` is what the other program starts. It imports little,
passes its streams, folder and environment to the tests, which fork a process for the command, and
forwards signals to that one. It ends when the command does, with the same exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ForkedCommands:
    """Listens on a socket for commands, and runs each of them in a forked process."""

    def __init__(self, path):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # The listener is closed.
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection):
        # What the other program starts imports this file too, and has none of this.
        from support.forked_process import ForkedProcess  # noqa: PLC0415

        with connection, connection.makefile("rwb") as pipe:
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            request = json.loads(pipe.readline())
            stdin, stdout, stderr = streams
            process = ForkedProcess(
                ["-m", "fourfold", *request["arguments"]],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=request["folder"],
                env=request["environment"],
            )
            for stream in streams:
                os.close(stream)
            pipe.write(b"%d\n" % process.pid)
            pipe.flush()
            pipe.write(b"%d\n" % process.wait())

    def close(self):
        # A thread that accepts would keep the listener open.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def main():
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rwb") as pipe:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [b"."], [0, 1, 2])
        request = {
            "arguments": sys.argv[2:],
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib is slow to import
            "environment": dict(os.environ),
        }
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()
        process_id = int(pipe.readline())
        for number in SIGNALS:
            signal.signal(number, lambda number, _: os.kill(process_id, number))
        code = int(pipe.readline())
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
