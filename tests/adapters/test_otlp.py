"""Traces of turns, against an HTTP server that decodes the protobuf."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from served_streams import Served

import fourfold
from fourfold.adapters import otlp
from fourfold.cli import main
from fourfold.errors import BadAnswer, CallFailed, InvalidInput, NotFound, ServerUnreachable
from fourfold.models.sessions.runtime import Final, Question, Runtime
from fourfold.retry import Retries
from support.otlp_receiver import Receiver

SECRET = "the secret of the fold"


@pytest.fixture
def receiver():
    started = Receiver()
    yield started
    started.stop()


def attributes(span):
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes
    }


def step(turn):
    """Ask the model, use a tool and a child; fail, ask back or answer as the task says."""
    if turn.task == "child task":
        return Final("of the child")
    turn.call("model", lambda: {"text": SECRET})
    turn.use(input_tokens=12, output_tokens=3, dollars=0.5)
    if turn.task == "fail":
        turn.call("search", lambda: 1 / 0)
    turn.call("search", lambda: {"rows": [SECRET]})
    turn.run_child("child task")
    return Question(SECRET) if turn.task == "ask" else Final(SECRET)


@pytest.fixture
def runtime(sessions):
    runtime = Runtime(sessions, step)
    runtime.start({"id": "s", "agent": "helper", "model": "large", "provider": "acme"})
    return runtime


def test_final_turn_is_one_trace_by_the_conventions(runtime, sessions, receiver):
    runtime.run_turn("s", f"please: {SECRET}")
    report = otlp.export_traces(sessions, "s", receiver.url, headers={"x-key": "k"})
    assert (report.turns, report.spans) == (1, 3)
    assert receiver.paths == ["/v1/traces"]
    assert receiver.headers[0]["Content-Type"] == "application/x-protobuf"
    assert receiver.headers[0]["X-Key"] == "k"
    chat, tool, root = receiver.spans()
    assert [span.name for span in (root, chat, tool)] == [
        "invoke_agent helper",
        "chat large",
        "execute_tool search",
    ]
    assert [span.kind for span in (root, chat, tool)] == [
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_CLIENT,
        Span.SPAN_KIND_INTERNAL,
    ]
    assert {span.trace_id for span in (root, chat, tool)} == {otlp.trace_id("s", 1)}
    assert root.parent_span_id == b""
    assert chat.parent_span_id == tool.parent_span_id == root.span_id
    assert root.start_time_unix_nano <= chat.start_time_unix_nano <= chat.end_time_unix_nano
    assert tool.end_time_unix_nano <= root.end_time_unix_nano
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "s",
        "gen_ai.provider.name": "acme",
        "gen_ai.agent.name": "helper",
        "gen_ai.request.model": "large",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "fourfold.usage.dollars": 0.5,
        "fourfold.turn.id": 1,
        "fourfold.turn.status": "final",
    }
    assert attributes(tool)["gen_ai.tool.name"] == "search"
    assert attributes(chat)["gen_ai.operation.name"] == "chat"
    assert root.status.code == Status.STATUS_CODE_UNSET


def test_child_session_is_linked_to_its_own_trace(runtime, sessions, receiver):
    runtime.run_turn("s", "work")
    otlp.export_traces(sessions, "s", receiver.url)
    [link] = receiver.spans()[-1].links
    [edge] = [edge for edge in sessions.lineage("s") if edge.from_session == "s"]
    otlp.export_traces(sessions, edge.to_session, receiver.url)
    child = receiver.spans()[-1]
    assert (child.trace_id, child.span_id) == (link.trace_id, link.span_id)


def test_content_is_sent_on_request_only(runtime, sessions, receiver):
    runtime.run_turn("s", f"please: {SECRET}")
    runtime.run_turn("s", "fail")
    otlp.export_traces(sessions, "s", receiver.url)
    assert SECRET.encode() not in b"".join(receiver.bodies)
    assert b"division" not in b"".join(receiver.bodies)
    otlp.export_traces(sessions, "s", receiver.url, content=True)
    spans = receiver.spans()[-6:]
    chat, tool, root = spans[:3]
    [question] = json.loads(attributes(root)["gen_ai.input.messages"])
    assert question == {
        "role": "user",
        "parts": [{"type": "text", "content": f"please: {SECRET}"}],
    }
    [answer] = json.loads(attributes(root)["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    assert answer["parts"] == [{"type": "text", "content": SECRET}]
    assert json.loads(attributes(tool)["gen_ai.tool.call.result"]) == {"rows": [SECRET]}
    assert SECRET in attributes(chat)["gen_ai.output.messages"]
    assert spans[4].status.message == "division by zero"


def test_failed_turn_and_call_have_an_error(runtime, sessions, receiver):
    runtime.run_turn("s", "fail")
    otlp.export_traces(sessions, "s", receiver.url)
    _, tool, root = receiver.spans()
    assert tool.status.code == root.status.code == Status.STATUS_CODE_ERROR
    assert attributes(tool)["error.type"] == "ZeroDivisionError"
    assert attributes(root)["error.type"] == CallFailed.kind
    assert attributes(root)["fourfold.turn.status"] == "error"


def test_running_turn_is_not_exported_and_a_question_is(runtime, sessions, receiver):
    sessions.append_event("s", {"type": "turn/started", "turn": {"status": "running"}})
    assert otlp.export_traces(sessions, "s", receiver.url).spans == 0
    assert receiver.bodies == []
    runtime.run_turn("s", "ask")
    report = otlp.export_traces(sessions, "s", receiver.url)
    # The turn that was left is settled as an error by the next one.
    assert report.turns == 2
    statuses = [attributes(span).get("fourfold.turn.status") for span in receiver.spans()]
    assert [status for status in statuses if status] == ["error", "waiting"]


def test_repeated_export_sends_the_same_bytes(runtime, sessions, receiver):
    for task in ("one", "fail", "two"):
        runtime.run_turn("s", task)
    otlp.export_traces(sessions, "s", receiver.url)
    first = receiver.bodies.copy()
    receiver.bodies.clear()
    otlp.export_traces(sessions, "s", receiver.url)
    assert receiver.bodies == first
    spans = receiver.spans()
    assert len({span.span_id for span in spans}) == len(spans)
    assert len({span.trace_id for span in spans}) == 3


def test_exports_in_parts_equal_one_export(runtime, sessions, receiver):
    after = 0
    for task in ("one", "two", "three"):
        runtime.run_turn("s", task)
        report = otlp.export_traces(sessions, "s", receiver.url, after=after)
        assert report.turns == 1
        after = report.last_event
    assert otlp.export_traces(sessions, "s", receiver.url, after=after).turns == 0
    parts = [span.SerializeToString() for span in receiver.spans()]
    receiver.bodies.clear()
    otlp.export_traces(sessions, "s", receiver.url)
    assert [span.SerializeToString() for span in receiver.spans()] == parts
    # From the middle of a turn: it has not ended there, so it is sent as a whole.
    receiver.bodies.clear()
    start = next(event.id for event in sessions.events("s") if event.type == "eval/added")
    otlp.export_traces(sessions, "s", receiver.url, after=start)
    assert [span.SerializeToString() for span in receiver.spans()] == parts
    with pytest.raises(NotFound):
        otlp.export_traces(sessions, "s", receiver.url, after=after + 1)


def test_turn_that_is_changed_after_its_end_is_sent_once(runtime, sessions, receiver):
    runtime.run_turn("s", "one")
    first = otlp.export_traces(sessions, "s", receiver.url)
    turn = {"id": 1, "status": "final", "note": "added later"}
    sessions.append_event("s", {"type": "turn/put", "turn": turn})
    later = otlp.export_traces(sessions, "s", receiver.url, after=first.last_event)
    assert (later.turns, later.last_event) == (0, first.last_event + 1)
    bodies = receiver.bodies.copy()
    otlp.export_traces(sessions, "s", receiver.url)
    assert receiver.bodies[len(bodies) :] == bodies


def test_sessions_of_a_server_give_the_same_traces(tmp_path, store, runtime, sessions, receiver):
    runtime.run_turn("s", "one")
    runtime.run_turn("s", "fail")
    otlp.export_traces(sessions, "s", receiver.url, content=True)
    store.close()
    served = Served(tmp_path / "store")
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as connected:
        report = otlp.export_traces(connected.sessions, "s", receiver.url, content=True)
    served.kill()
    assert report.turns == 2
    assert receiver.bodies[0] == receiver.bodies[1]


def test_long_turn_is_sent_in_several_requests(sessions, receiver):
    def long(turn):
        for number in range(600):
            turn.call("tool", lambda number=number: number)
        return Final("done")

    runtime = Runtime(sessions, long)
    runtime.start({"id": "s"})
    runtime.run_turn("s", "go")
    assert otlp.export_traces(sessions, "s", receiver.url).spans == 601
    assert len(receiver.bodies) == 2
    assert len({span.span_id for span in receiver.spans()}) == 601


def test_busy_receiver_is_tried_again_and_a_refusal_is_reported(
    runtime, sessions, receiver, monkeypatch
):
    monkeypatch.setattr(otlp, "_RETRIES", Retries(most=2, pause_s=0.001))
    runtime.run_turn("s", "one")
    receiver.statuses = [503, 429]
    assert otlp.export_traces(sessions, "s", receiver.url).turns == 1
    receiver.statuses = [401]
    with pytest.raises(BadAnswer, match="401"):
        otlp.export_traces(sessions, "s", receiver.url)
    receiver.rejected = 2
    with pytest.raises(BadAnswer, match="2 spans were rejected"):
        otlp.export_traces(sessions, "s", receiver.url)
    receiver.stop()
    with pytest.raises(ServerUnreachable) as caught:
        otlp.export_traces(sessions, "s", receiver.url)
    assert "receiver" in caught.value.hint
    for url in ("localhost:4318", "file:///etc/hosts", ""):
        with pytest.raises(InvalidInput, match="url"):
            otlp.export_traces(sessions, "s", url)


def test_command_exports_traces(tmp_path, store, runtime, receiver, capfd):
    runtime.run_turn("s", f"please: {SECRET}")
    store.close()
    root = str(tmp_path / "store")
    assert main.run(["session", "export", root, "s", "--otlp", receiver.url]) == 0
    assert "exported 1 turn of s as 3 spans" in capfd.readouterr().out
    assert SECRET.encode() not in receiver.bodies[0]
    options = ["--otlp", f"{receiver.url}/v1/traces", "--content", "--json"]
    assert main.run(["session", "export", root, "s", *options]) == 0
    assert json.loads(capfd.readouterr().out)["spans"] == 3
    assert receiver.paths == ["/v1/traces", "/v1/traces"]
    assert SECRET.encode() in receiver.bodies[1]
    assert main.run(["session", "export", root, "s", "--content"]) == 2
    assert main.run(["session", "export", root, "s", "--otlp", receiver.url, "--whole"]) == 2
