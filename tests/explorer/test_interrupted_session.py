"""Pages of sessions whose worker stopped: interrupted, resumed by another worker, and live."""

from __future__ import annotations

import contextlib
import json

import pytest

import fourfold
from fourfold import Final, Runtime
from server.served_streams import Served

NARROW = {"width": 390, "height": 844}
SID = "support/refund"


def fill(root, *, resume=True):
    """Run a turn that stops after two calls of its step, and resume it."""
    calls = []

    def step(turn):
        turn.use(input_tokens=10, output_tokens=1)
        turn.call("look up", lambda: "broken goods are refunded")
        turn.call("order", lambda: {"total": 75})
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        turn.call("refund", lambda: True)
        return Final("Refunded.")

    with fourfold.open(root) as store:
        agent = Runtime(store.sessions, step, lease_s=0.001)
        agent.start({"id": SID})
        with contextlib.suppress(KeyboardInterrupt):
            agent.run_turn(SID, "Refund it.")
        if resume:
            assert agent.resume(SID).value == "Refunded."
        else:
            store.sessions.claim(SID, "m/1/x", 0.001)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    root = tmp_path_factory.mktemp("resumed") / "store"
    fill(root)
    server = Served(root)
    yield server
    server.kill()


@pytest.mark.parametrize("viewport", [None, NARROW], ids=["wide", "narrow"])
def test_an_interruption_is_on_the_timeline_and_in_the_transcript(visit, resumed, viewport):
    options = {} if viewport is None else {"viewport": viewport, "color_scheme": "dark"}
    visitor = visit(resumed, **options)
    page = visitor.page
    visitor.open(f"/session?sid={SID}")
    note = page.locator(".entry.interrupted").inner_text()
    assert note.startswith("Interrupted after event 6, resumed ")
    assert "at event 7. 2 recorded calls were replayed, not made again." in note
    assert page.locator(".timeline rect.interrupted").count() == 1
    assert "interrupted, resumed after" in page.locator(".timeline text.interrupted").text_content()
    assert page.get_by_role("row", name="After 6").get_by_text("resumed by process").count() == 1
    assert not visitor.has_sideways_scroll()
    assert visitor.problems == []


def test_the_past_before_a_resumption_does_not_show_it(visit, resumed):
    visitor = visit(resumed)
    data = json.loads(resumed.ask("GET", f"/session.json?sid={SID}&at=5").text)
    assert (data["interruptions"], data["lease"], data["timeline"]["gaps"]) == ([], None, [])
    visitor.open(f"/session?sid={SID}&at=5")
    assert visitor.page.locator(".entry.interrupted").count() == 0
    assert visitor.problems == []


def test_an_interrupted_session_is_refreshed_whole_by_new_events(visit, tmp_path):
    fill(tmp_path / "store", resume=False)
    server = Served(tmp_path / "store")
    try:
        visitor = visit(server)
        page = visitor.page
        visitor.open(f"/session?sid={SID}")
        assert page.locator("#session-state").inner_text() == "interrupted"
        assert "stopped after event 6" in page.locator(".hint.warn").inner_text()
        assert page.locator("#fork").inner_text() == "Fork at event 6"
        path = f"/v1/sessions/lease/{SID}"
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"holder": "another worker", "ttl_s": 3600})
        claim = json.loads(server.ask("POST", path, body, headers).text)
        event = {"type": "step/put", "step": {"id": 1, "turn_id": 1, "status": "done"}}
        path = f"/v1/sessions/events/{SID}"
        epoch = {"Fourfold-Epoch": str(claim["epoch"])}
        answer = server.ask("POST", path, json.dumps({"events": [event]}), headers | epoch)
        assert answer.status < 300, answer.text
        page.locator("#session-state", has_text="running").wait_for()
        assert page.locator(".hint.warn").count() == 0
        assert page.locator("#session-head").get_by_text("7 events").count() == 1
        assert page.locator("text.now").count() == 1
        assert page.get_by_role("row", name="Holder another worker").count() == 1
        assert page.locator("#fork").inner_text() == "Fork at event 7"
        assert visitor.problems == []
    finally:
        server.kill()
