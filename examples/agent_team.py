"""Three workers share the conversations of one server; one is killed, another resumes its turn.

What they learn in one conversation they use in the next one, and the resumed turn is one trace.
Run it: `python examples/agent_team.py`. It works in a temporary folder, and needs `fourfold[otlp]`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import fourfold
from fourfold import Final, Runtime
from fourfold.adapters.otlp import export_traces
from fourfold.errors import AlreadyClaimed, LeaseLost, ServerUnreachable
from fourfold.models.sessions.runtime import Turn

CUSTOMERS = ("ada", "grace", "barbara")
WORKERS = ("one", "two", "three")
PAUSE_S = 0.05


# A worker


def model(question: str, facts: list[str]) -> str:
    """Answer a question. Here a real program calls a language model."""
    return f"{question} -> " + ("; ".join(facts) if facts else "noted")


def work(name: str, url: str, prefix: str, crashed: str) -> None:
    """Run a turn of each session below a prefix, until all of them have ended."""
    with fourfold.connect(url) as store:
        memory = store.memory("team")

        def step(turn: Turn) -> Final | None:
            customer = turn.session.rpartition("/")[2]
            if turn.number == 1:
                facts = [
                    hit.item.value["text"] for hit in memory.search("eats", namespace=customer)
                ]
                turn.vars["answer"] = turn.call("model", model, turn.task, facts)
                turn.say("assistant", f"{turn.vars['answer']} (worker {name})")
                return None
            if customer == "grace" and not Path(crashed).exists():
                Path(crashed).write_text(name)
                os.kill(os.getpid(), signal.SIGKILL)
            turn.call("remember", memory.put, customer, "diet", {"text": turn.task})
            turn.say("assistant", f"remembered (worker {name})")
            return Final(turn.vars["answer"])

        runtime = Runtime(store.sessions, step)
        pending = [info.id for info in store.sessions.list(prefix=prefix)]
        while pending:
            sid = pending.pop(0)
            task = (store.sessions.current_view(sid).session or {})["task"]
            try:
                runtime.run_turn(sid, task, key="the turn")
            except (AlreadyClaimed, LeaseLost):
                # Another worker has it: look again later, it may be killed.
                pending.append(sid)
                time.sleep(PAUSE_S)


# The program that starts them


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve a store in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        with fourfold.connect(url) as store:
            while True:
                try:
                    store.sessions.list(limit=1)
                    break
                except ServerUnreachable:
                    time.sleep(PAUSE_S)
        yield url
    finally:
        server.terminate()
        server.wait()


def run_workers(url: str, prefix: str, crashed: Path) -> list[int]:
    """Start all workers, wait for them, and return their exit codes."""
    command = [sys.executable, __file__]
    running = [subprocess.Popen([*command, name, url, prefix, str(crashed)]) for name in WORKERS]
    return [worker.wait() for worker in running]


@contextmanager
def receiving(spans: list[Span]) -> Iterator[str]:
    """Receive traces as an OpenTelemetry collector does."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = ExportTraceServiceRequest.FromString(body)
            spans.extend(
                span
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def main(folder: Path) -> None:
    """Let the team work for two days."""
    crashed = folder / "crashed"
    with serving(folder / "store") as url, fourfold.connect(url) as store:
        sessions = store.sessions
        for customer in CUSTOMERS:
            task = f"{customer} eats no nuts"
            sessions.create({"id": f"monday/{customer}", "agent": "waiter", "task": task})
        codes = run_workers(url, "monday/", crashed)
        killed = codes.count(-signal.SIGKILL)
        print(
            f"monday: {len(codes)} workers, {killed} of them killed (worker {crashed.read_text()})"
        )

        view = sessions.current_view("monday/grace")
        print(f"the turn of grace: {view.turns[-1]['status']}, with {len(view.evals)} calls")
        for resumption in sessions.resumptions("monday/grace"):
            print(f"  resumed after event {resumption.after} by {resumption.holder}")
        for entry in sessions.transcript("monday/grace").entries:
            if entry.kind == "message":
                print(f"  {entry.title}: {entry.content}")

        for customer in CUSTOMERS:
            task = f"what does {customer} get for lunch?"
            sessions.create({"id": f"tuesday/{customer}", "agent": "waiter", "task": task})
        run_workers(url, "tuesday/", crashed)
        print("tuesday:")
        for customer in CUSTOMERS:
            turn = sessions.current_view(f"tuesday/{customer}").turns[-1]
            print(f"  {sessions.read_payload(turn['final_ref'])}")

        spans: list[Span] = []
        with receiving(spans) as collector:
            export_traces(sessions, "monday/grace", collector, service="team")
        print("the trace of grace on monday:")
        for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
            indent = "    " if span.parent_span_id else "  "
            print(f"{indent}{span.name}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
