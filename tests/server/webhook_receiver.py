"""A receiver of webhooks on this machine, which answers as it is told to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Keeps what it was told. `answers` are statuses and bodies to give in turn; the last stays."""

    def __init__(self, *answers):
        self.answers = list(answers) or [(200, {})]
        self.told = []
        self.came = threading.Condition()
        self.gate = threading.Event()
        """Answers are held back until it is set; it is, unless a test clears it."""
        self.gate.set()
        self.inside = self.most_inside = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                raw = self.rfile.read(int(self.headers["content-length"]))
                with receiver.came:
                    status, said, *more = receiver.answers[0]
                    if len(receiver.answers) > 1:
                        del receiver.answers[0]
                    receiver.told.append((json.loads(raw), raw, dict(self.headers)))
                    receiver.inside += 1
                    receiver.most_inside = max(receiver.most_inside, receiver.inside)
                    receiver.came.notify_all()
                receiver.gate.wait(30)
                with receiver.came:
                    receiver.inside -= 1
                body = json.dumps(said).encode()
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
        """What was told, once it is so much."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.told) >= count, 30), self.told
            return list(self.told)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
