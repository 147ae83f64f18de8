"""Sessions that wait for a person: on the home, in the list, and on the page of the session."""

from __future__ import annotations

import json

from shop_store import AGENT, ASKER

SESSION = f"/session?sid={ASKER}"


def read(server, path):
    answer = server.ask("GET", path, headers={"Accept": "text/html"})
    assert answer.status == 200, answer.text
    return answer.text.decode()


def test_list_of_sessions_is_filtered_by_those_that_wait(shop):
    every = json.loads(read(shop, "/sessions.json"))["sessions"]
    assert len(every) > 1
    waiting = json.loads(read(shop, "/sessions.json?status=waiting"))["sessions"]
    assert [row["id"] for row in waiting] == [ASKER]
    page = read(shop, "/sessions?status=waiting")
    assert '<span class="state warn">waiting</span>' in page
    assert "<option selected>waiting</option>" in page


def test_page_of_session_shows_question_and_call_that_answers(shop):
    page = read(shop, SESSION)
    assert "Waits for a person" in page
    assert "Refund 120.00?\nIt is above my limit." in page
    assert "runtime.run_turn(&#34;agent/asks&#34;, answer)" in page
    assert '<span class="badge warn">waiting</span>' in page
    assert "Waits for a person" not in read(shop, f"/session?sid={AGENT}")
    # While its turn was running, it did not wait.
    assert "Waits for a person" not in read(shop, f"{SESSION}&at=3")


def test_home_lists_sessions_that_wait_with_their_questions(shop):
    home = json.loads(read(shop, "/index.json"))["waiting"]
    assert home["count"] == 1
    assert [(row["id"], row["question"]) for row in home["rows"]] == [
        (ASKER, "Refund 120.00? It is above my limit.")
    ]
    assert "Waiting for a person" in read(shop, "/")


def test_answer_ends_the_wait(own_shop):
    before = json.loads(read(own_shop, f"/session.json?sid={ASKER}"))["event_id"]
    body = json.dumps({"events": [{"type": "turn/started", "turn": {"status": "running"}}]})
    kind = {"Content-Type": "application/json"}
    answer = own_shop.ask("POST", f"/v1/sessions/events/{ASKER}", body, kind)
    assert answer.status == 200, answer.text
    assert "Waits for a person" not in read(own_shop, SESSION)
    assert "Waits for a person" in read(own_shop, f"{SESSION}&at={before}")
    assert json.loads(read(own_shop, "/sessions.json?status=waiting"))["sessions"] == []
    assert json.loads(read(own_shop, "/index.json"))["waiting"]["rows"] == []


def test_question_of_a_live_session_disappears_without_a_new_page(visit, own_shop):
    visitor = visit(own_shop)
    visitor.open(SESSION)
    asked = visitor.page.get_by_role("heading", name="Waits for a person")
    asked.wait_for()
    body = json.dumps({"events": [{"type": "turn/started", "turn": {"status": "running"}}]})
    kind = {"Content-Type": "application/json"}
    own_shop.ask("POST", f"/v1/sessions/events/{ASKER}", body, kind)
    asked.wait_for(state="detached")
    assert visitor.problems == []


def test_hostile_question_is_shown_as_text(visit, probes):
    visitor = visit(probes)
    for path in ("/", "/session?sid=asks", "/sessions?status=waiting"):
        visitor.open(path)
    assert visitor.problems == []
    visitor.open("/session?sid=asks")
    assert "<img src=x onerror=alert(1)>" in visitor.page.locator(".waiting").inner_text()
