"""A receiver of webhooks on this machine with scripted responses."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Record webhook calls. `answers` are statuses and bodies to send in turn; the last repeats."""

    def __init__(self, *answers):
        self.answers = list(answers) or [(200, {})]
        self.calls = []
        self.received = threading.Condition()
        self.gate = threading.Event()
        """Responses wait until it is set, which it is unless a test clears it."""
        self.gate.set()
        self.inside = self.most_inside = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                raw = self.rfile.read(int(self.headers["content-length"]))
                with receiver.received:
                    status, document, *more = receiver.answers[0]
                    if len(receiver.answers) > 1:
                        del receiver.answers[0]
                    receiver.calls.append((json.loads(raw), raw, dict(self.headers)))
                    receiver.inside += 1
                    receiver.most_inside = max(receiver.most_inside, receiver.inside)
                    receiver.received.notify_all()
                receiver.gate.wait(30)
                with receiver.received:
                    receiver.inside -= 1
                body = json.dumps(document).encode()
                self.send_response(status)
                for name, value in more:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def wait(self, count=1):
        """Wait for `count` calls and return all calls."""
        with self.received:
            assert self.received.wait_for(lambda: len(self.calls) >= count, 30), self.calls
            return list(self.calls)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
